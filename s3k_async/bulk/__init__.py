"""Changes by the client's verbs, of one path or many: write, copy, adopt, rename, delete,
transfer."""
