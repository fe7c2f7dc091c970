"""Runtime services below every other layer: clock, randomness, concurrency, retries, metering."""
