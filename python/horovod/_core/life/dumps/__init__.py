"""What a rank writes of itself when its job hangs, and who asks for it."""
