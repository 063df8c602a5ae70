"""Turn stored conversations into training rows: readers, writers and the `tito samples` command.

Reading lines, grouping them and making rows are pure steps on values that can be pickled. The same functions
run in one process and on a cluster.
"""
