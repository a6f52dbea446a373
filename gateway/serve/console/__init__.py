"""The console: pages for who runs the gateway, under `/console` of the admin port.

Turns what the packages know of themselves into HTML for a person who signed in. Nothing is kept for it that the gateway
does not keep anyway, and nothing of it but the mount and a key is loaded before somebody asks for a page.
"""
