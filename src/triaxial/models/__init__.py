"""Model adapters: records in, arrays out; nothing of torch leaves a prediction adapter."""
