"""What the core knows about tensors: element types, the questions an adapter answers, casts."""
