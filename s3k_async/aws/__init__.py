"""AWS and what speaks its protocols: sessions, clients, and the edge at which their errors become
ours."""
