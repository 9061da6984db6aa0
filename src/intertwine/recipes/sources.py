"""Every figure, table, theorem, definition and procedure of the four sources, and what shows it here.

A row is shown by recipes (their verdict is in what they wrote), by tests (which hold it on every run), or by
nothing, and then it says why. `docs/reproduce.md` is made of these rows by scripts/make_reproduce_table.py;
tests/unit/test_sources_table.py holds them against the recipes and the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = {
    "000": "Going beyond neural network feature similarity (Iterative Feature Merging)",
    "002": "On the symmetries of deep learning models and their internal representations",
    "003": "Are the proposed similarity metrics also a measure of functional similarity?",
    "004": "GENNI: visualising the geometry of equivalences for neural network identifiability",
}


@dataclass(frozen=True)
class SourceRow:
    """source: its number. item: as the source numbers it. by: names of recipes, or FILE::TEST below tests/.

    note: why there is nothing, or what is left out; "nothing to run" where nothing can be computed.
    """

    source: str
    item: str
    what: str
    by: tuple[str, ...] = ()
    note: str = ""

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes among what shows it."""
        return tuple(name for name in self.by if "::" not in name)

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests among what shows it."""
        return tuple(name for name in self.by if "::" in name)


def rows() -> tuple[SourceRow, ...]:
    """All rows, in the order of the sources.

    >>> [row.by for row in rows() if (row.source, row.item) == ("003", "Table 4.1")]
    [('functional-table4.1',)]
    """
    found = []
    for line in _TABLE.strip().splitlines():
        source, item, what, by, note = (part.strip() for part in line.split("|"))
        found.append(SourceRow(source, item, what, tuple(by.split()), note))
    return tuple(found)


# source | item | what it is about | recipes and tests | note
_TABLE = """
000 | Figure 1 | equivalent features and complexity, a drawing | | nothing to run: a drawing
000 | Table 1 | terms of category theory and of networks | | nothing to run: words
000 | Eq. 3 | a network structure as a category | unit/test_values.py::test_a_model_is_like_itself_under_the_group_at_every_value | the graph that `inspect` shows
000 | Definition 2.1 | functionally equivalent features | unit/test_source_theory.py::test_the_defect_of_naturality_is_zero_for_an_isomorphic_net_and_only_for_one |
000 | Proposition 2.2 | linear mode connectivity implies an isomorphism | ifm-connected |
000 | Figure 2a | distances of the features of the last convolution | ifm-fig2a |
000 | Section 4.1, ours | does longer training with weight decay make equal features? | ifm-training | our question: the source says that they are equal, not why
000 | Figure 2b | interpolation to swapped features | ifm-fig2b |
000 | Theorem 2.3 | several isomorphisms iff two features are equal | unit/test_merge.py::test_automorphisms_are_the_planted_ones unit/test_orbit_stabiliser.py::test_a_generic_model_has_no_automorphism |
000 | Definition 2.4 | feature complexity | property/test_symmetry.py::test_planted_duplicates_are_automorphisms |
000 | Eq. 6 | the distance of two features | unit/test_merge_parity.py::test_same_merges_as_the_formulas |
000 | Eqs. 7, 8 | merging two features | unit/test_merge_parity.py::test_same_merges_as_the_formulas |
000 | Eqs. 9, 10 | when to stop, and weighted means | unit/test_merge_parity.py::test_same_merges_as_the_formulas unit/test_merge_parity.py::test_max_ratio_stops_as_the_released_code_does |
000 | Algorithm 1 | Iterative Feature Merging | unit/test_merge_parity.py::test_same_merges_as_the_formulas unit/test_merge_parity.py::test_the_two_orders_differ |
000 | Figure 3a | accuracy against parameters left; the headline of VGG16 | ifm-fig3a |
000 | Figure 3b | accuracy against the number of parameters | ifm-fig3b | VGGs only
000 | Figure 4a | VGGs of ImageNet | ifm-fig4 | its weights are not here
000 | Figure 4b | two ResNet50 of ImageNet | ifm-fig4 | its weights are not here
000 | Figure 5a | feature complexity against depth | ifm-fig5a |
000 | Figure 5b | guided backpropagation of trucks | ifm-fig5b |
000 | Figure 6 | pruning of ResNet18 | ifm-fig6 | without INN
000 | Definition C.1 | linear mode connectivity | unit/test_align.py::test_the_line_between_copies_is_flat |
000 | Definition C.2 | layerwise linear feature connectivity | unit/test_align.py::test_features_of_the_mean |
000 | Eq. 14 | naturality under a permutation | unit/test_source_theory.py::test_the_defect_of_naturality_is_zero_for_an_isomorphic_net_and_only_for_one |
000 | Appendix D | training and the grid of beta | unit/test_train_recipe.py::test_ifm_is_the_source |
000 | Table 2 | seconds of an iteration | ifm-table2 | another machine: the order of the nets is tested
000 | Figure 7 | distances in the first twelve layers | ifm-fig7 |
000 | Figure 8 | guided backpropagation across classes | ifm-fig8 |
000 | Figure 9 | guided backpropagation of boats | ifm-fig9 |
000 | Table 3 | which pruning methods need data | | nothing to run: a list of other methods
002 | Figure 1 | stitching penalties of Myrtle CNNs | symmetry-fig1 |
002 | Figure 2 | CKA of ResNet20s | symmetry-fig2 |
002 | Figure 3 | interpretable units under rotations | symmetry-fig3 |
002 | Table 1 | intertwiner groups of six activations | symmetry-table1 unit/test_activations.py::test_table_1 |
002 | Lemma 3.1 | phi is a homomorphism that intertwines | unit/test_activations.py::test_lemma_3_1_gives_the_same_phi unit/test_activations.py::test_phi_is_a_homomorphism_that_intertwines |
002 | Definition 3.2 | the intertwiner group | unit/test_activations.py::test_modules_and_callables |
002 | Theorem 3.3 | G_ReLU is the stabiliser of the rays | unit/test_source_theory.py::test_theorem_3_3_the_stabiliser_of_the_rays_is_the_group_of_relu unit/test_source_theory.py::test_theorem_3_3_only_basis_rays_have_a_finite_orbit |
002 | Proposition 3.4 | the group acts, the function stays | property/test_symmetry.py::test_the_group_acts_and_the_output_stays |
002 | Remark 3.6 | residual connections | unit/test_stitch.py::test_theorem_4_2_outside_and_remark_3_6_inside |
002 | Figure 4 | rotation penalties (section 3.3) | symmetry-fig4 |
002 | Theorem 4.2 | a group stitch is enough on an orbit | unit/test_stitch.py::test_theorem_4_2_outside_and_remark_3_6_inside |
002 | Eq. 4.3 | the stitching penalty | unit/test_stitch.py::test_the_stitched_module_is_what_was_evaluated_and_trains_only_the_stitch |
002 | Lemma 5.1 | invariance to diagonal and permutation is enough | property/test_similarity_invariance.py::test_invariant_to_its_group |
002 | Definition 5.2 | G_ReLU-Procrustes | unit/test_similarity_measures.py::test_grelu_procrustes_by_brute_force |
002 | Table 2 | Procrustes of Myrtle CNNs | symmetry-table2 |
002 | Definition 5.3 | G_ReLU-CKA | unit/test_similarity_measures.py::test_max_kernel_is_d72_written_with_loops |
002 | Remark 5.5 | the Laplace kernel is positive semi-definite | unit/test_similarity_measures.py::test_laplace_kernel_is_eq_56_and_positive_semi_definite |
002 | Figure 5 | CKA of Myrtle CNNs | symmetry-fig5 |
002 | D.1 | the training of the zoo | unit/test_train_recipe.py::test_godfrey_is_the_source |
002 | D.2 | how stitches are trained | unit/test_stitch.py::test_training_as_the_source_starts_anywhere_and_reports_its_alpha | `stitch --as source`
002 | D.2.1 | permutations by the Birkhoff polytope | unit/test_stitch.py::test_sinkhorn_and_rounding unit/test_stitch.py::test_permutations_are_found_from_a_bad_start |
002 | D.2.2 | permutations by SoftSort | unit/test_stitch.py::test_permutations_are_found_from_a_bad_start |
002 | Figure 6 | stitching penalties of ResNet20s | symmetry-fig6 |
002 | Figure 7 | stitching penalties of ResNet18s | symmetry-fig7 |
002 | Table 3 | accuracy of LeakyReLU nets | symmetry-fig8 |
002 | Figure 8 | stitching of LeakyReLU nets | symmetry-fig8 |
002 | Figure 9 | Procrustes of ResNet20s | symmetry-fig9 |
002 | Figure 10 | Procrustes of ResNet18s | symmetry-fig10 |
002 | Figure 11 | CKA of ResNet18s | symmetry-fig11 |
002 | Figure 12 | stitching of vision transformers | symmetry-fig12 | ViTs, GPTs and modular-addition transformers; ten trained CCTs are not here
002 | Figure 13 | stitching with alpha chosen | symmetry-fig13 |
002 | Figure 14 | which alpha is chosen | symmetry-fig14 unit/test_stitch.py::test_an_alpha_that_was_chosen_is_told |
002 | Figure 15 | penalty against sparsity | symmetry-fig15 |
002 | Eq. D.1 | the sparsity of a stitch | unit/test_stitch.py::test_sparsity_of_a_monomial_map |
002 | D.7.1 | Procrustes over pixels | unit/test_similarity_measures.py::test_procrustes_by_brute_force |
002 | D.7.2 | CKA over pixels | unit/test_similarity_measures.py::test_max_kernel_is_d72_written_with_loops |
002 | Remark D.3 | positions kept apart | unit/test_source_theory.py::test_remark_d3_positions_kept_apart |
002 | Table 4 | Procrustes at constant width | symmetry-table4 | the text has the numbers of one layer only
002 | Figure 16 | CKA at constant width (D.8) | symmetry-fig16 |
002 | Lemma E.7, Remark E.9 | when sigma(I) is invertible | unit/test_activations.py::test_condition_e8_is_invertibility unit/test_activations.py::test_condition_e8_for_every_n |
002 | Lemma E.10, Corollary E.11 | permutations are in every group | unit/test_activations.py::test_phi_is_a_homomorphism_that_intertwines |
002 | Lemma E.12, Theorem E.14 | how groups are calculated | unit/test_activations.py::test_counterexamples_break unit/test_activations.py::test_table_1 |
002 | Figure 17 | GELU and its lack of homogeneity | symmetry-fig17 unit/test_activations.py::test_xi_slope |
002 | Corollary E.28 | symmetries of the loss landscape | property/test_symmetry.py::test_the_group_acts_and_the_output_stays |
002 | E.7 | sizes of classes of stitches | unit/test_source_theory.py::test_e7_fewer_group_maps_than_maps_of_any_rank |
002 | Example E.44 | the max kernel is not positive semi-definite | unit/test_source_theory.py::test_example_e44_by_hand unit/test_similarity_measures.py::test_max_kernel_is_not_positive_semi_definite |
002 | Lemma E.46 | what the max kernel cannot see | unit/test_source_theory.py::test_lemma_e46_what_the_max_kernel_cannot_see |
002 | E.9.1 | batch normalisation | property/test_symmetry.py::test_the_group_acts_and_the_output_stays |
002 | E.9.2 | residual connections | unit/test_stitch.py::test_theorem_4_2_outside_and_remark_3_6_inside unit/test_stitch.py::test_the_theorem_holds_inside_with_the_skip_of_b |
002 | F.1 | network dissection | unit/test_dissect.py::test_iou_is_that_of_the_definition |
002 | Figure 18 | categories of interpretable units | symmetry-fig18 |
002 | Figure 19 | interpretable units inside blocks | symmetry-fig19 |
002 | Figure 20 | concepts of a ResNet-50 | symmetry-fig20 |
002 | Figure 21 | best units of a ResNet-50 | symmetry-fig21 | pictures: left to the eye
002 | Figure 22 | concepts of a modified ResNet-50 | symmetry-fig22 |
002 | Figure 23 | best units of a modified ResNet-50 | symmetry-fig23 | pictures: left to the eye
002 | Figure 24 | concepts of a ConvNeXt | symmetry-fig24 |
002 | Figure 25 | best units of a ConvNeXt | symmetry-fig25 | pictures: left to the eye
002 | Figures 26 to 28 | schematics of the nets | unit/test_zoo.py::test_parameter_counts_of_the_sources | their numbers of parameters
003 | 2.1 | CCA | unit/test_similarity_measures.py::test_cca_is_the_qr_form |
003 | 2.2 | SVCCA | unit/test_similarity_measures.py::test_svcca_drops_noise_that_cca_keeps |
003 | 2.3 | projection-weighted CCA | unit/test_similarity_measures.py::test_pwcca_is_the_formula_of_the_paper |
003 | 2.4 | linear CKA | unit/test_similarity_measures.py::test_cka_from_kernels_is_cka_from_moments |
003 | 2.4, identity | CCA as CKA of whitened features | unit/test_source_theory.py::test_r2_cca_is_cka_of_whitened_features |
003 | Figure 3.1 | an SVM tells nets and data sets apart | functional-fig3.1 | nets are confused too; our guess: means over pixels tell less of their net than all pixels do
003 | Figure 3.2 | t-SNE of features | functional-fig3.2 |
003 | Figure 3.3 | CKA of nets on three data sets | functional-fig3.3 |
003 | Figure 3.4 | CKA against outputs | functional-fig3.4 |
003 | Figure 3.5 | nets in training against their final selves | functional-fig3.5 |
003 | Figure 3.6 | policies: CKA against JSD | functional-fig3.6 |
003 | Figure 3.7 | the network with a bottleneck | functional-fig3.7 |
003 | Figure 3.8 | policies with a bottleneck | functional-fig3.8 |
003 | Table 3.1 | correlations of three experiments | functional-table3.1 |
003 | Figure 4.1 | two heads on one base, a drawing | | nothing to run: a drawing of the nets of table 4.1
003 | Table 4.1 | same features, opposite functions | functional-table4.1 |
003 | Appendix, figure 1 | policies: CKA against Spearman | functional-figA1 |
003 | Appendix, figure 2 | the same with a bottleneck | functional-figA2 |
004 | Section 2, class | equivalent parameters and a metric on functions | unit/test_explore_search.py::test_losses_are_the_j_of_the_points |
004 | Section 2, orbit | the class as an orbit; isotropy of a parameter | unit/test_source_theory.py::test_isotropy_is_what_leaves_a_parameter_as_it_is unit/test_explore_quotient.py::test_each_part_of_the_group_is_divided_out |
004 | Algorithm 1 | the search for equivalent parameters | unit/test_explore_search.py::test_found_points_satisfy_the_exact_invariants |
004 | Section 3 | plane, grid and epsilon-set | unit/test_explore_plane.py::test_span_is_orthonormal_and_holds_its_points unit/test_explore_plane.py::test_every_grid_point_has_its_own_j |
004 | Figure 1 | a four-parameter net in a plane | genni-fig1 | its epsilon lies above the variance of the outputs, so that the set holds constant functions too
004 | Figure 2 | the same in space, and its hole | genni-fig2 unit/test_source_theory.py::test_the_hole_of_figure_2b_is_two_units_on_one_side unit/test_source_theory.py::test_betti_numbers_of_known_sets |
004 | Table 1 | hyperparameters of LeNet | unit/test_sources_table.py::test_hyperparameters_of_genni_are_those_of_its_tables | what `genni-fig4` to `fig6` run with
004 | Table 2 | hyperparameters of the small net | unit/test_sources_table.py::test_hyperparameters_of_genni_are_those_of_its_tables | what `genni-fig1` to `fig3` run with
004 | Figure 3 | UMAP of the small net's class | genni-fig3 |
004 | Figure 4 | LeNet in a plane | genni-fig4 |
004 | Figure 5 | LeNet in space | genni-fig5 |
004 | Figure 6 | UMAP of LeNet's class | genni-fig6 |
"""  # noqa: E501
