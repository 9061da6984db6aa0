"""intertwine: infer, prove and use the weight-space symmetries of any PyTorch model."""
