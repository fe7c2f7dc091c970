"""Alerts about findings of fsck and gc: messages, and the sinks to which they are sent."""
