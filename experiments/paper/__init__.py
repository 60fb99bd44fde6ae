"""The evaluation of the paper, adaptive batch search by Wang, Zhang and Kitsuregawa, repeated.

Each figure of the paper has a module: `fig4a` to `fig4d`. `times` runs all plans on the same batches, and
makes `fig4a` in time; `live` runs controllers while the index grows, for `fig4d`. `counting` compares the
R*-tree with counting, as earlier work of the authors did, and `generators` compares ways to draw boxes and
to build a tree. `experiments.controllers` compares controllers.

`settings` says what is run, `index` grows the index, `work` counts the work of a batch by plan, `timing`
takes its time, and `runner` runs an experiment. `plans` knows the range of levels of the paper, `verdicts`
what its words mean. `page` writes the pages with claims and results, `report` gathers them, and says how long
all of it takes.

Other papers are repeated by the same runner, each in a folder of its own: `papers` names them.
"""
