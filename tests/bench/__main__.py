"""`make bench`: every figure in one run, as a ratio to the bare calls where there are any."""

from tests.bench import engine, imports, load, placement, placement_nodes, substrate, upkeep, zones
from tests.bench.measure import keep

for part in (imports, engine, load, substrate, upkeep, placement, placement_nodes, zones):
    part.main()
keep("machine")
