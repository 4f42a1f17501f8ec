"""Whole machines by Ironic, in a cloud or by itself.

::

    driver.py      a node for a sliver: reserved, deployed, taken away
    reading.py     nodes as Ironic tells them; stamps
    states.py      what each of Ironic's states means
    deployment.py  what a node is deployed with: instance_info, config drive
    requests.py    requests about a node that is locked
"""
