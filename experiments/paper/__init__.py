"""The evaluation of the paper, adaptive batch search by Wang, Zhang and Kitsuregawa, repeated.

Each figure of the paper has a module: `fig4a` to `fig4d`. Two more experiments belong to them: `counting`
compares the R*-tree with counting, as earlier work of the authors did, and `regret` follows controllers over
long runs. `settings` says what is run, `index` grows the index, `work` counts the work of a batch by plan,
`timing` takes its time, and `runner` runs an experiment. `report` writes the page with claims and results.
"""
