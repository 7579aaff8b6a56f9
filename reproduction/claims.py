"""The paper's claims about its evaluation and its examples, each with its judge and with why it comes out so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reproduction.findings import Findings
from reproduction.verdicts import cells, program, queries
from reproduction.verdicts.judging import HOLDS, UNKNOWN, Judgement


@dataclass(frozen=True)
class Claim:
    """What the paper says, and how it is judged."""

    section: str
    words: str
    judge: Callable[[Findings], Judgement]
    why: str
    """Where it holds."""
    why_not: str
    """Where it does not, or only in part."""

    def reason(self, verdict: str) -> str:
        """What explains a verdict."""
        return {HOLDS: self.why, UNKNOWN: ""}.get(verdict, self.why_not)


CLAIMS: Sequence[Claim] = (
    Claim(
        "1",
        "Example 1: measuring q₂ and q₃ and adding them has a total error of 8 / ε², less than noise on results and "
        "noise on data",
        program.first_example_is_better,
        "q₁ = q₂ + q₃, and no record is in both.",
        "It is a fact of arithmetic; the figures beside are damaged.",
    ),
    Claim(
        "1",
        "Example 2: the best total error is 39 / ε²",
        program.second_example_is_optimal,
        "Nothing below was found, which is no proof.",
        "LRM itself finds less, with r = 4 like the strategy in the paper.",
    ),
    Claim(
        "6.1",
        "The errors of LRM are not sensitive to γ from 10⁻⁴ to 10",
        program.insensitive_to_relaxation,
        "The structural error ‖(W − B L) x‖² is small beside the noise.",
        "The structural error ‖(W − B L) x‖² grows with γ² and with the counts but not with 1/ε, and outweighs the "
        "noise sooner or later. A large γ lowers the noise's part, because B L leaves out more of W.",
    ),
    Claim(
        "6.1",
        "LRM runs much faster with larger γ (here twice)",
        program.faster_with_relaxation,
        "It stops as soon as ‖W − B L‖_F ≤ γ.",
        "It stops as soon as ‖W − B L‖_F ≤ γ, but most of the time is spent before any of these γ is reached.",
    ),
    Claim(
        "6.1",
        "The error is quadratic in 1/ε",
        program.quadratic_in_budget,
        "All of it is noise.",
        "Only the noise scales with 1/ε; the structural error of a relaxed or truncated decomposition stays.",
    ),
    Claim(
        "6.1",
        "With r < rank(W) the error is far worse (here ten times), by up to two orders of magnitude",
        program.poor_below_the_rank,
        "The structural error again. It grows with the counts and does not depend on ε, so the factor can have any "
        "size. Here r < rank(W) takes the nearest matrix of rank r.",
        "The structural error depends on the data and not on ε: at a small ε the noise hides it, and fewer "
        "measurements need less noise. Here r < rank(W) takes the nearest matrix of rank r.",
    ),
    Claim(
        "6.1",
        "The error is stable from r = 1.2 rank(W) on (here within 25 %)",
        program.stable_above_the_rank,
        "Rows of zeros may be added to any L, so a larger r can only help; here it helps little.",
        "Rows of zeros may be added to any L, so the optimum never rises with r. The program is not convex: what rises "
        "or falls is which local optimum the solver ends in.",
    ),
    Claim(
        "6.1",
        "The time grows exponentially with r",
        program.exponential_time,
        "A round costs O(r² (m + n)); the number of rounds must have grown as well.",
        "A round costs O(r² (m + n)), as the paper's own analysis says, a power; and a larger r may need fewer rounds.",
    ),
    Claim(
        "6.2",
        "MM is worse than all other mechanisms in all experiments",
        cells.matrix_mechanism_is_worst,
        "It minimises an L2 sensitivity and pays the L1 one.",
        "It minimises an L2 sensitivity and pays the L1 one. But trees and wavelets, which are made for long ranges, "
        "are sometimes further off still.",
    ),
    Claim(
        "2.2",
        "MM is never below noise on data",
        cells.matrix_mechanism_never_beats_noise_on_data,
        "A full n × n matrix that is good under L2 has columns of a large L1 norm.",
        "Where noise on data is poor enough, even the L2 optimum paid in L1 is below it.",
    ),
    Claim(
        "6.2",
        "On WDiscrete, LM is the best while n is small (here n ≤ m)",
        cells.noise_on_data_wins_small,
        "Nothing here found more to share between the queries.",
        "98 % of the entries are −1, so one measurement of the total takes most of every query; a decomposition with "
        "that row is below LM even at small n.",
    ),
    Claim(
        "6.2",
        "On WDiscrete, the errors of all mechanisms but LRM are linear in n",
        cells.others_linear_in_cells,
        "‖W‖² is linear in n.",
        "LM's is ‖W‖², and that is linear in n. The others also pay for levels or columns that grow in number with n.",
    ),
    Claim(
        "6.2",
        "On WDiscrete, LRM's error stops growing beyond n = 512 (here n ≥ 2 m)",
        cells.low_rank_stops_growing,
        "The rank is limited by m.",
        "The rank is limited by m, but every further column is one more that B must reach within the L1 ball; what the "
        "bound does beside says how much of the growth is no solver's fault.",
    ),
    Claim(
        "6.2",
        "On WRange, WM and HM are below LM from n = 512 on",
        cells.synopses_win_on_ranges,
        "They pay powers of log n where LM pays the length of a range.",
        "They pay powers of log n where LM pays the length of a range; where LM is below, the powers weigh more.",
    ),
    Claim(
        "6.2",
        "On WRange, LRM is significantly better than all others (here twice)",
        cells.low_rank_wins_on_ranges,
        "m random ranges cut the domain into at most 2 m + 1 pieces, however large n is.",
        "m random ranges cut the domain into at most 2 m + 1 pieces, however large n is; while n is small there is "
        "little to gain from that.",
    ),
    Claim(
        "6.2",
        "On WRelated, LRM is the best in all cases",
        cells.low_rank_wins_on_related,
        "n is large against s² throughout.",
        "W = C A: measuring the s rows of A has a sensitivity of about s, and so an error like s³ against LM's s n; "
        "below n of about s² noise on data is better.",
    ),
    Claim(
        "6.2",
        "On WRelated, the gap is over two orders of magnitude at n = 8192",
        cells.two_orders_on_related,
        "n is large against s².",
        "The gain over noise on data is about n / s², and s = 128 is half of m. The lower bound holds for every "
        "factorisation, so it says how much there is to gain at all.",
    ),
    Claim(
        "6.3",
        "On WRange, LRM is better than the others when m is much smaller than n (here n/4)",
        queries.low_rank_wins_with_few_queries,
        "Few ranges cut the domain into few pieces.",
        "The solver ends in a local optimum above the best rival.",
    ),
    Claim(
        "6.3",
        "On WRange, the errors of all mechanisms converge with growing m (here to within a factor of 2)",
        queries.errors_converge_with_queries,
        "With many ranges W nears that of all ranges.",
        "The factor between them depends on m only as far as LRM does, and its error grows slowly.",
    ),
    Claim(
        "6.3",
        "On WRange, WM is the best at m = 1024",
        queries.wavelets_win_with_many_queries,
        "So many ranges have no low rank.",
        "The rank is high, but a decomposition for these ranges and this n is still better than one for all ranges.",
    ),
    Claim(
        "6.3",
        "On WRelated, LRM is dramatically better for any m (here twice)",
        queries.low_rank_wins_for_any_queries,
        "n is large against s² throughout.",
        "Table 1 has s grow with m, and noise on data is hard to beat unless n is larger than about s².",
    ),
    Claim(
        "6.3",
        "LRM's error is linear in the rank",
        queries.linear_in_rank,
        "As in Lemma 3, and ‖W‖² changes little.",
        "W = C A is not normalised: ‖W‖² grows with s itself. Lemma 3 speaks of r ‖W‖², so it is the error over ‖W‖² "
        "that should be linear.",
    ),
    Claim(
        "6.4",
        "LRM is over two orders of magnitude better when the rank is low",
        queries.two_orders_at_low_rank,
        "n is large against s².",
        "The gain over noise on data is about n / s²; the bound beside says what any factorisation could reach.",
    ),
    Claim(
        "6.4",
        "The other mechanisms' errors do not change with s (here within 25 %)",
        queries.others_stable_in_rank,
        "They do not look at the rank.",
        "W = C A is not normalised: its entries have variance s, and so the errors of all grow with s.",
    ),
    Claim(
        "6.4",
        "LRM's error grows rapidly with s (here twice as much as LM's)",
        queries.low_rank_grows_with_rank,
        "The number of measurements and their sensitivity both grow with s.",
        "The range of s is too small to tell.",
    ),
    Claim(
        "abstract",
        "LRM consistently outperforms the state of the art",
        queries.consistently_better,
        "Queries that overlap leave much to gain.",
        "It does so where n is large against the rank, or against the number of pieces that ranges cut; on dense "
        "random workloads noise on data is better.",
    ),
)
