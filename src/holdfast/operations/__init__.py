"""What an operator can do to the parts of the platform; each act and its audit event are one commit."""
