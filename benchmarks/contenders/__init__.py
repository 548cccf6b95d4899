"""Who is measured and how it is started (`peers`); what a rank asks of it (`library`), and a file for each."""
