"""Decide which messages are the same, and say which differences were forgiven.

`compare.same` compares two messages, `canonical.normalize` returns what makes up a message's identity,
`receipts.Forgiveness` is the table of what is forgiven, `clean.clean` prepares new messages for a template.
"""
