"""Controllers compared on logs in which every batch was run by every plan.

* `cases`: workloads in which the best plan moves, or might;
* `logs`: makes logs, in seconds and in work units, and their files;
* `rivals`: controllers that are compared but not part of the package;
* `contest`: lets every controller choose on every log, and says what it loses to the best.
"""
