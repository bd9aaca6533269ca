/* Made from placement/placement-v1.schema.json by `npm run schema`; not to be edited. */

export type Format = "walkgraph/placement@1";
export type Name = string;
/**
 * The graph it was made for; None: any graph that has its names.
 */
export type Graph = string | null;
/**
 * @minItems 1
 */
export type Nodes = (string | "*")[];
/**
 * @minItems 1
 */
export type Ranks = number[];
/**
 * The nodes are here in these Walks only; None: in all Walks.
 */
export type Walks = string[] | null;
/**
 * Ranks that divide the weights of its nodes.
 */
export type TensorParallel = number;
/**
 * Ranks that divide the tokens of its nodes' flow steps, each with whole weights.
 */
export type SequenceParallel = number;
/**
 * Tensor-parallel ranks hold whole experts of mixtures instead of a part of each; it goes for all that these ranks
 * hold.
 */
export type ExpertParallel = boolean;
/**
 * Experts of each layer, those with the most work, that two ranks hold with `expert_parallel`.
 */
export type RedundantExperts = number;
export type Replicas = number;
/**
 * Memory of each rank: bytes, a size (`2GiB`) or a share of the device's free memory (`40%`). None: what is
 * left.
 */
export type Memory = number | string | null;
/**
 * The host of its ranks; `any`: a plan chooses it, and another one once that is lost. None: that which they or
 * other groups name, or else the one that plans.
 */
export type Host = string | null;
/**
 * Number format of those weights of its nodes that may have it, instead of what nodes say. None: what they say.
 */
export type Precision = ("bf16" | "fp8" | "int4") | null;
export type Groups = Group[];
export type Rank = number;
export type Device = string;
/**
 * The host of this rank, for groups that span several; `any`: a plan chooses it. None: that of its groups.
 */
export type Host1 = string | null;
export type Ranks1 = RankDevice[];
/**
 * The transport of all tensors between ranks, even where another is cheaper. None: the cheapest for each edge.
 */
export type Transport = string | null;

export interface PlacementDocument {
  format?: Format;
  name: Name;
  graph?: Graph;
  groups: Groups;
  ranks: Ranks1;
  transport?: Transport;
}
export interface Group {
  nodes: Nodes;
  ranks: Ranks;
  walks?: Walks;
  tensor_parallel?: TensorParallel;
  sequence_parallel?: SequenceParallel;
  expert_parallel?: ExpertParallel;
  redundant_experts?: RedundantExperts;
  replicas?: Replicas;
  memory?: Memory;
  host?: Host;
  precision?: Precision;
}
export interface RankDevice {
  rank: Rank;
  device: Device;
  host?: Host1;
}
