"""`tito audit`: compare stored conversations with a fresh render of their messages, explain drift."""
