// Sentences and labels of edits and differences of documents.

/** Kinds of items as a sentence says them. */
const KINDS: Readonly<Record<string, string>> = { choose: "choice", otherwise: "branch for other values" };

export const document = {
  // blueprints.ts
  anotherBlueprintsName: (name: string) =>
    `\`${name}\` is no name, or that of another blueprint; choose another one.`,
  aBlueprintOfThisGraph: "A blueprint of this graph: a Walk as one node.",
  // choices.ts, judge.ts, pieces.ts
  aMerge: "a merge",
  merge: "Merge",
  theCase: (name: string) => `Case \`${name}\``,
  aKind: (kind: string) => `A ${KINDS[kind] ?? kind}`,
  thisIsNoChoice: "This is no choice.",
  hasNoHead: "Only a choice or a map takes a value at its head.",
  onlyACaseHasAValue: "Only a case of a choice has a value.",
  aCaseNeedsAValue: "A case needs a value: a text, a whole number, true or false.",
  thereIsAlreadyACase: (name: string) => `There is already a case \`${name}\`: choose another value.`,
  aCaseStaysInItsChoice: "A case stays in its choice: select the steps in it, or the choice.",
  aCaseHasOnlyAName: "A case has only a value: set conditions at its choice, or at its steps.",
  putItIntoOneOfItsCases: "A choice holds its steps in cases: put it into one of them.",
  thereIsNoMerge: (name: string) => `there is no merge \`${name}\``,
  thereIsNoMergeWithName: (name: string) => `There is no merge \`${name}\`.`,
  thereIsNoHead: (what: string) => `there is no such ${what}`,
  aChoiceGoesBy: "a choice goes by a step's output, an input of the Walk, or a merge",
  aChoiceGoesByAFlag: (modality: string) => `a choice goes by a flag, a whole number or a text, this is ${modality}`,
  aMapGoesThrough: "a map goes through a step's output, an input of the Walk, or a merge",
  aMapGoesThroughAList: (modality: string) =>
    `a map goes through a list, or the slices of a tensor, this is one ${modality}`,
  isInsideTheHead: (name: string, what: string) => `\`${name}\` is inside the ${what}, so its value comes too late`,
  theHeadCantComeAfter: (what: string, name: string, reason: string) =>
    `the ${what} can't come after \`${name}\`: ${reason}`,
  collectItsValuesFirst: (name: string, map: string) =>
    `\`${name}\` has a value for every item of \`${map}\`; collect them in a step after the map`,
  hasAValueForEveryItem: (name: string, map: string) =>
    `\`${name}\` has a value for every item of \`${map}\`; collect them, or send each to the client`,
  itemsAreIndependent: (map: string) =>
    `the items of \`${map}\` are independent, so none takes a value of the one before; use a loop for that`,
  aStreamIsReadBeforeAMap: "a stream can't be read by every item of a map; read it before the map",
  inDifferentBranches: (a: string, b: string) =>
    `\`${a}\` and \`${b}\` are in different branches of a choice, of which only one runs`,
  aMergeTakesOutputs: "a merge takes outputs of steps",
  theMergeHasItAlready: (name: string) => `the merge \`${name}\` has it already`,
  isInNoBranchOfTheChoice: (name: string) =>
    `\`${name}\` is in no branch of the merge's choice, so it would always be there`,
  mayRunTogetherWith: (name: string, others: string) => `\`${name}\` may run together with \`${others}\``,
  isInABranchThatTheMerge: (name: string) => `\`${name}\` is in a branch of the choice that the merge comes out of`,
  // diff.ts
  theGraphsChanged: (key: string) => `The graph's ${key} changed`,
  field: (key: string) => `Field \`${key}\``,
  theGraph: "The graph",
  weights: "Weights",
  state: "State",
  node: "Node",
  walk: "Walk",
  input: "Input",
  item: "Item",
  edge: "Edge",
  result: "Result",
  stream: "Stream",
  task: "Task",
  walkWithName: (name: string) => `Walk \`${name}\``,
  walkWithWalk: (walk: string) => `Walk \`${walk}\``,
  streamWithName: (name: string) => `Stream \`${name}\``,
  wasAdded: (title: string) => `${title} was added`,
  moved: (value: string) => `moved to ${value}`,
  theWalkItself: "the Walk itself",
  movedWithinTheOrder: "moved within the order",
  wasRemoved: (entry: string) => `${entry} was removed`,
  loop: (name: string) => `Loop \`${name}\``,
  map: (name: string) => `Map \`${name}\``,
  fork: (value: string) => `Fork of \`${value}\``,
  anUnknownItem: "An unknown item",
  edgeWithName: (name: string) => `Edge ${name}`,
  changed: (names: string, count: string) => `${names}${count} changed`,
  andMore: (count: number) => ` and ${count} more`,
  notSet: "not set",
  // clipboard.ts
  whatWasCopiedHoldsNo: "What was copied holds no items; paste it on the components canvas.",
  // edges.ts
  theEdgeLeavesNoLoop: "the edge leaves no loop, so there is nothing to stack",
  theEdgeLeavesNoLoop2: "the edge leaves no loop, so there is one value only",
  theEdgeEntersNoLoop: "the edge enters no loop, so there are no slices to take",
  anOutputGetsEachValue: "an output gets each value as it comes, or all stacked at the end; choose one",
  cantComeLater: (name: string, shift: string) => `\`${name}\` can't come later: ${shift}`,
  onlyAnEdgeBetweenTwo: "Only an edge between two uses can be carried.",
  noLoopHoldsBothEnds: "No loop holds both ends; put them into one, and it carries the value.",
  cantComeEarlier: (name: string, shift: string) => `\`${name}\` can't come earlier: ${shift}`,
  hasNoOutputThatTakes: (to: string) => `has no output that \`${to}\` takes`,
  takesNoOutput: (from: string) => `takes no output of \`${from}\``,
  chooseAnotherNode: (node: string, what: string) => `\`${node}\` ${what}; choose another node.`,
  onlyAUseCanChange: "Only a use can change its node.",
  aUse: "a use",
  theWalkNoLongerHas: "The Walk no longer has this edge.",
  // items.ts
  thereIsNoStateAdd: (state: string) => `There is no state \`${state}\`; add it first.`,
  cantBeForkedIntoItself: (fork: string) => `\`${fork}\` can't be forked into itself; choose another state.`,
  anItemCantBeMoved: "An item can't be moved into itself; choose a place outside of it.",
  ofNodeReadsLoop: (param: string, node: string, name: string, value: string) =>
    `\`${param}\` of node \`${node}\` reads \`@loop.${name}\` in Walk \`${value}\` too; give the loops one name.`,
  aLoop: "a loop",
  aLoopCantBeNamed: (name: string, name2: string) =>
    `A loop can't be named \`${name}\`, as \`@loop.${name2}\` reads otherwise; use letters and \`_\`.`,
  // judge.ts
  theWalkHasNoInput: (name: string) => `the Walk has no input \`${name}\``,
  thereIsNoUse: (name: string) => `there is no use \`${name}\` in the Walk`,
  cantBeTheName: (name: string) => `\`${name}\` can't be the name of an output`,
  takesNoEdge: (reference: string) => `\`${reference}\` takes no edge`,
  thereIsNoUseWithName: (name: string) => `there is no use \`${name}\``,
  inTheWalk: (word: string) => `${word} in the Walk`,
  nameAPort: "name a port",
  hasNo: (name: string, side: string, name2: string) => `\`${name}\` has no ${side} \`${name2}\``,
  thereIsNoLoopAround: "there is no loop around the target, so no index to read",
  theLoopIsntAround: (name: string) => `the loop \`${name}\` isn't around the target`,
  putBothIntoALoop: "put both into a loop to carry the value to its next iteration",
  comesBefore: (name: string, name2: string, shift: string, loop: string) =>
    `\`${name}\` comes before \`${name2}\`, and ${shift}; ${loop}`,
  thereIsNoStream: (name: string) => `there is no stream \`${name}\``,
  theWalkSharesNodes: (walk: string) =>
    `the Walk shares nodes with \`${walk}\`, which writes the stream; draw an edge inside one Walk`,
  itsValueHasNoAxes: "its value has no axes, and `each` takes slices",
  isOneValue: (modality: string) => `it is one \`${modality}\`, and \`each\` takes slices`,
  listsCantBeCollected: "it gives lists, which can’t be collected",
  cantBeJoined: (modality: string) => `values of \`${modality}\` can’t be joined; collect a list`,
  // mute.ts
  onlySingleUsesCan: "Only single uses can be bypassed; mute a container instead.",
  // nodes.ts
  aNode: "a node",
  thereAreNoWeights: (weights: string) => `There are no weights \`${weights}\`.`,
  thereIsNoState: (state: string) => `There is no state \`${state}\`.`,
  aState: "a state",
  // document.ts
  thereIsNoWalk: (name: string) => `There is no Walk \`${name}\`.`,
  thereIsNoNode: (name: string) => `There is no node \`${name}\`.`,
  thereIsNoTask: (name: string) => `There is no task \`${name}\`.`,
  theWalkNoLongerHasWithId: (id: string) => `The Walk no longer has \`${id}\`.`,
  cantBeANameStart: (name: string) =>
    `\`${name}\` can't be a name: start with a letter, then letters, digits, \`_\` or \`-\`, 64 at most.`,
  thereIsAlreadyChooseAnother: (what: string, name: string) =>
    `There is already ${what} \`${name}\`; choose another name.`,
  // order.ts
  cantComeItself: (name: string, value: string) => `\`${name}\` can't come ${value} itself`,
  andKeepStateSoTheir: (name: string, name2: string, shared: string) =>
    `\`${name}\` and \`${name2}\` keep state \`${shared}\`, so their order matters`,
  needsWhatComes: (name: string, name2: string) => `\`${name}\` needs what comes from \`${name2}\``,
  andRunSideBySide: (name: string, name2: string) =>
    `\`${name}\` and \`${name2}\` run side by side in one parallel; put them in a sequence`,
  // pieces.ts
  cantHoldOtherItems: (parent: string) => `\`${parent}\` can't hold other items.`,
  // streams.ts
  aStream: "a stream",
  streamTakesOfWalkToo: (name: string, from: string, value: string | undefined) =>
    `Stream \`${name}\` takes \`${from}\` of Walk \`${value}\` too; rename the node instead, or split the stream.`,
  thereIsNoStreamWithName: (name: string) => `There is no stream \`${name}\`.`,
  // tasks.ts
  aTask: "a task",
  theTaskHasNo: (what: string, name: string) => `The task has no ${what} \`${name}\`.`,
  anInputOrAParameter: "an input or a parameter",
  cantBeUsedInExpressions: (name: string) =>
    `\`${name}\` can't be used in expressions; use letters, digits and \`_\`, and no reserved word.`,
  aStepCantBeMoved: "A step can't be moved into itself.",
  theTaskNoLongerHas: "The task no longer has this step.",
  thisIsNotAList: "This is not a list of steps.",
  // walks.ts
  aWalk: "a Walk",
  taskCallsAStep: (name: string, walk: string, to: string) =>
    `Task \`${name}\` calls a step of \`${walk}\` \`${to}\`; choose another name.`,
  taskCallsAnAnswer: (name: string, to: string) =>
    `Task \`${name}\` calls the answer of an approval \`${to}\`; choose another name.`,
  anInput: "an input",
  aResult: "a result",
  thereIsNoUseWithFrom: (from: string) => `There is no use \`${from}\` in the Walk to take a result from.`,
  isInNoLoopSoThere: (name: string) => `\`${name}\` is in no loop, so there is nothing to stack.`,
  theWalkHasNoResult: (from: string) => `The Walk has no result \`${from}\`.`,
  theWalkSendsNoOut: (from: string) => `The Walk sends no \`@out.${from}\`.`,
  anOutput: "an output",
  theWalkHasNoInputWithName: (name: string) => `The Walk has no input \`${name}\`.`,
  isNotAPortTypeWrite: (type: string, MODALITIES: string) =>
    `\`${type}\` is not a port type; write a kind of value (${MODALITIES}), or \`latents: float[n, 64]\`.`,
  // wrap.ts
  selectWhatToWrap: "Select what to wrap.",
  selectItemsOfOneContainer: "Select items of one container; these are in different ones.",
  theseItemsFeedOneAnother: "These items feed one another, so they can't run in parallel; select some that don't.",
  standsBetweenTheseItems: (value: string, value2: string) =>
    `${value} stands between these items and is needed by ${value2}; select it too.`,
  onlyAContainerCan: "Only a container can be unwrapped.",
  needsWhatComesBefore: (value: string, value2: string) =>
    `${value} needs what comes before it from ${value2}; they can't become branches of their own.`,
  aFork: "A fork",
  // ports.ts
  doesNotFit: (modality: string, modality2: string) => `\`${modality}\` does not fit \`${modality2}\``,
  dtypeDoesNotFit: (dtype: string, dtype2: string) => `dtype \`${dtype}\` does not fit \`${dtype2}\``,
  aListDoesNotFit: "a list does not fit a single value",
  aSingleValueDoesNotFit: "a single value does not fit a list",
  shapeHasAxesExpected: (shape: string, count: number, count2: number) =>
    `shape ${shape} has ${count} axes, expected ${count2}`,
  sizeDoesNotFit: (given: number, size: number, shape: string) =>
    `size ${given} does not fit ${size} in shape ${shape}`,
};
