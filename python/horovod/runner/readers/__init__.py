"""What users and other programs have written, read with bounds of time and length."""
