"""`make docs` renews in place everything in README.md and workshop/ that comes from a run or from the code.

A page is Markdown that people write, with blocks that only this package writes:

    <!-- run: RECORD KIND [ARGUMENT ...] -->         a record is a committed run, docs/runs/RECORD
    <!-- /run -->
    <!-- list: NAME -->                              facts from the code: scenarios, panels, options ...
    <!-- /list -->
    <!-- help: COMMAND -->                           a command's arguments and options
    <!-- /help -->
    <!-- table: NAME -->                             a benchmark's figures; it writes the table itself
    <!-- /table -->
    <!-- fig: RECORD CLAIM -->text<!-- /fig -->      in a sentence: a claim's measurement

Kinds of a run: `facts`, `claims [ID ...]`, `phases FIGURE ... [only=PHASE,...]`, `plot CHART`, `explain [HEADING ...]`
(its first words, with hyphens). A `fig` may also name one figure of a claim (``fig: RECORD CLAIM FIGURE``), a
quantity of a phase (``fig: RECORD PHASE QUANTITY``), or its ratio in two (``fig: RECORD PHASE/PHASE QUANTITY``).

`make docs` renews every block from the committed records: the same every time. `make docs RUNS=DIR` first takes new
records from a run folder, or from a folder of them, pruned to what judging and drawing need. Every record is judged
again by today's claims; no result is stored with it.

tests/docs executes the commands of a page, and checks its promises:

    ```sh blocks are typed as they stand. A comment right above one says what it needs:
    <!-- needs: scene CAUSE -->      `lab blind open CAUSE` in another terminal; healthy: `lab scene --healthy`
    <!-- needs: compose -->          the scene on Docker
    <!-- needs: slow - TEST -->      that test executes it; tests/docs checks only its words
    <!-- needs: person - REASON -->  only a person can execute it
    A ```text block after it is what it prints: `...` stands for any lines, a number for any number.
    A figure with a unit in a sentence comes from a run; `<!-- by definition -->` on its line if it does not.
"""
