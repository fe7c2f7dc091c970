"""Files and directories: reads that resolve write intents, changes of one entry, recursive and
multi-path changes."""
