"""`tito audit`: stored conversations against what messages would have made of them, break by break."""
