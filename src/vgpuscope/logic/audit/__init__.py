"""Rules that the numbers of a running system must obey, whatever made them.

The auditor knows the definitions of figures and the public shapes of answers. It shares no code with what makes the
answers.
"""
