"""The admin interface: what is known of each session, and what an operator may do about it.

A listener of its own, off the network unless a token guards it. `guard` decides who may ask for what,
`views` makes values of what is known, `api` answers, `listener` holds the socket, `feed` is the live
tail, `page/` the one page.
"""
