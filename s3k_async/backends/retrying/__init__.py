"""The ports with retries: transient errors are retried, lost responses are resolved."""
