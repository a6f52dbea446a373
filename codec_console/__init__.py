"""The console: pages for the operator of the gateway, under `/console` on the admin port.

Turns what the packages report about themselves into HTML for a person who is signed in. How answers are made is
recorded only while somebody is signed in, and only the mount and the sign-in are loaded before the first request.
"""
