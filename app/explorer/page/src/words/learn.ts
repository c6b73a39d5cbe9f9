import type { Words } from '../words';

export const learn = {
  'learn.title': ['Attention, one computation at a time', '注意力，一步一步算清楚'],
  'learn.lead': [
    'Every number here comes from the engine and changes when you change it. Each lesson asks you to do one thing and checks it.',
    '这里的每个数字都由引擎算出，你一改动它就跟着变。每一课请你动手做一件事，并检查结果。',
  ],
  'learn.lessons': ['Lessons', '课程'],
  'learn.selftest': ['Self-test', '自测'],
  'learn.selftest.note': ['nine questions, fresh numbers each time', '九道题，每次换新数字'],
  'learn.next': ['Next step', '下一步'],
  'learn.back': ['Step back', '上一步'],
  'learn.next.lesson': ['Next lesson', '下一课'],
  'learn.back.lesson': ['Lesson before', '上一课'],
  'learn.step': ['Step {0} of {1}', '第 {0} 步，共 {1} 步'],
  'learn.act': ['Your turn', '轮到你了'],
  'learn.check': ['Check', '检查'],
  'learn.right': ['Right.', '做对了。'],
  'learn.wrong': ['Not yet. ', '还不对。'],
  'learn.done': ['done', '已完成'],
  'learn.begin': ['Begin', '开始'],
  'learn.go.on': ['Go on', '继续'],
  'learn.start.over': ['Put the numbers back', '恢复原来的数字'],
  'learn.in.bench': ['Open in the workbench', '在工作台打开'],
  'learn.progress': ['{0} of {1} done', '已完成 {0} / {1}'],

  'l.sources': ['Where information comes from', '信息从哪里来'],
  'l.sources.1': [
    'A token is a row of numbers. Attention lets a row collect information from other rows. The row that asks gives a {q|query}; the rows that are read give a {k|key} (is this for me?) and a {v|value} (what do I take along?).\n\nIn **self-attention** all three are made from the same rows X. In **cross-attention** the queries still come from X, but keys and values come from another sequence, the memory M: a translator’s source sentence, or the patches of an image. Nothing else differs. The computation is the same.',
    '一个词元就是一行数。注意力让一行从别的行收集信息：提问的行给出{q|查询}；被读的行给出{k|键}（与我有关吗）和{v|值}（我带走什么）。\n\n**自注意力**中，三者都由同一组行 X 得出。**交叉注意力**中，查询仍来自 X，键和值却来自另一个序列，即记忆 M：可以是待译的原文，也可以是图像的小块。除此之外没有任何不同，计算完全一样。',
  ],
  'l.sources.1.act': [
    'Switch to cross-attention. Then change one number of M so that V changes. Watch Q: it must stay as it is.',
    '切换到交叉注意力，再改动 M 中的一个数，使 V 改变。留意 Q：它应当不变。',
  ],
  'l.sources.1.done': [
    'Right. V changed because keys and values come from M; Q did not, because queries come from X.',
    '做对了。V 变了，因为键和值来自 M；Q 没变，因为查询来自 X。',
  ],
  'l.sources.1.hint': [
    'Cross must be chosen, and a number of M must differ from the one it had.',
    '需选“交叉注意力”，并且 M 里要有一个数与原来不同。',
  ],
  'l.roles': ['One input, three roles', '一份输入，三种角色'],
  'l.roles.1': [
    'Token C is the row $[1,1]$. Three learned matrices turn it into three vectors: $q=xW_Q$, $k=xW_K$, $v=xW_V$. Here $q=[1,1]$, $k=[1,2]$ and $v=[2,2]$.\n\nThe three roles are free of each other. {q|What C looks for}, {k|what C offers to be found by}, and {v|what C hands over} may be entirely different, although they come from the same row. Q and K decide **where** to read and **how much**; V is **what** is read.',
    '词元 C 是一行 $[1,1]$。三个学得的矩阵把它变成三个向量：$q=xW_Q$，$k=xW_K$，$v=xW_V$。这里 $q=[1,1]$，$k=[1,2]$，$v=[2,2]$。\n\n三种角色互不牵制：{q|C 想找什么}、{k|C 凭什么被找到}、{v|C 交出什么}，虽出自同一行，却可以完全不同。Q 和 K 决定**读哪里**、**读多少**；V 才是**读到的内容**。',
  ],
  'l.roles.1.act': [
    'Change one number of W_V so that the value of C becomes [3, 2]. The keys must stay as they are.',
    '改动 W_V 的一个数，使 C 的值变为 [3, 2]，键保持不变。',
  ],
  'l.roles.1.done': [
    'Right. W_V alone decides what C hands over; how it is found, its key, did not move.',
    '做对了。C 交出什么只由 W_V 决定；它凭什么被找到（它的键）没有变。',
  ],
  'l.roles.1.hint': [
    'The value of C is [{0}, {1}] now: its row {2} of X times W_V. It must become [3, 2].',
    'C 的值现在是 [{0}, {1}]，由 X 的行 {2} 乘以 W_V 得出，应变为 [3, 2]。',
  ],
  'l.roles.1.hint.keys': [
    'The keys have changed. Put the numbers back and change W_V only.',
    '键变了。请恢复原来的数字，只改 W_V。',
  ],
  'l.query': ['One query, end to end', '一个查询，从头到尾'],
  'l.query.1': [
    'C asks. Its query meets every key in a dot product: $2, 1, 3$. Divided by $\\sqrt{2}$ they become scores; the exponential makes them positive; divided by their sum they are {w|weights} that add up to 1. The output is the mix of the {v|values} with these weights. (By hand, with scores rounded to three decimals: $e^{2.121}=8.340$, sum 14.481. The engine does not round on the way.)\n\nNothing is looked up and nothing is chosen: every visible token contributes, each by its share. Drag a score: its weight grows, and because the sum stays 1, all others shrink.',
    'C 提问。它的查询与每个键做点积：$2, 1, 3$。除以 $\\sqrt{2}$ 得到分数；取指数变为正数；再除以总和，就是合计为 1 的{w|权重}。输出是{v|值}按权重的混合。（手算时若先把分数取三位小数：$e^{2.121}=8.340$，总和 14.481；引擎中途不取整。）\n\n这里没有查表，也没有“选中”谁：每个看得见的词元都按份额作出贡献。拖动一个分数试试：它的权重变大，而总和仍是 1，于是其余的都变小。',
  ],
  'l.query.1.act': [
    'Drag the score of A upwards until A holds at least half of the weight.',
    '把 A 的分数往上拖，直到 A 的权重至少占一半。',
  ],
  'l.query.1.done': [
    'Right. A took its share from the others: the weights still sum to 1, and the output moved towards A’s value.',
    '做对了。A 多占的份额来自其他键：权重之和仍是 1，输出向 A 的值靠近。',
  ],
  'l.query.1.hint': ['A holds {0} of the weight now.', '现在 A 的权重是 {0}。'],
  'l.query.2': [
    'Equal scores give equal weights, whatever their size: softmax only sees differences. Here both scores are 0, so each key gets one half, and the output lies in the middle of the two values: $\\tfrac12[2,0]+\\tfrac12[0,4]=[1,2]$.\n\nWith two keys the output can only move along the line between the two values. The weights say how far.',
    '分数相等，权重就相等，与分数大小无关：softmax 只看差值。这里两个分数都是 0，各得一半，输出正好落在两个值的中点：$\\tfrac12[2,0]+\\tfrac12[0,4]=[1,2]$。\n\n只有两个键时，输出只能在两个值的连线上移动，权重说明走了多远。',
  ],
  'l.query.2.act': [
    'Make the output [0.5, 3]. You may drag, type, or lock a weight.',
    '让输出变成 [0.5, 3]。可以拖动、输入，也可以锁定权重。',
  ],
  'l.query.2.done': [
    'Right. A quarter of [2, 0] and three quarters of [0, 4]: the output moves on the line between the two values.',
    '做对了。[2, 0] 占四分之一，[0, 4] 占四分之三：输出在两个值的连线上移动。',
  ],
  'l.query.2.hint': [
    'The output is [{0}, {1}] now. Which share of [2, 0] gives 0.5?',
    '现在输出是 [{0}, {1}]。[2, 0] 占多少份额才能得到 0.5？',
  ],
  'l.scale': ['Why divide by √d', '为什么要除以 √d'],
  'l.scale.1': [
    'Softmax answers differences exponentially. With scores 8 and 0 the first weight is 0.9997: all or nothing. Worse, learning follows the slope $p(1-p)$, and at 0.9997 the slope is 0.0003: a tiny step of the score changes nothing, so nothing is learned.\n\nDivided by $\\sqrt{64}=8$ the scores are 1 and 0. The first weight is 0.731 and the slope 0.197, 586 times as much.',
    'softmax 对差值的反应是指数式的。分数为 8 和 0 时，第一个权重是 0.9997，几乎非此即彼。更糟的是，学习依赖斜率 $p(1-p)$：在 0.9997 处斜率只有 0.0003，分数动一点几乎没有效果，也就学不到东西。\n\n除以 $\\sqrt{64}=8$ 之后分数是 1 和 0，第一个权重 0.731，斜率 0.197，是原来的 586 倍。',
  ],
  'l.scale.1.act': ['Choose a head size d that brings the slope above 0.19.', '选一个头宽 d，使斜率大于 0.19。'],
  'l.scale.1.done': [
    'Right. The same product, a smaller score, and a slope with which a step of learning changes something.',
    '做对了。点积没变，分数变小，斜率大到学习的一小步能起作用。',
  ],
  'l.scale.1.hint': ['The slope is {0}.', '现在的斜率是 {0}。'],
  'l.scale.1.hint.score': [
    'The score is {0}. Put it back to 8 and change only d.',
    '现在的分数是 {0}。请改回 8，只改 d。',
  ],
  'l.scale.2': [
    'Where do large scores come from? A dot product adds d terms. If the entries of q and k are independent with variance 1, each term has variance 1 and the sum has variance d: wider heads make larger scores all by themselves. Dividing by $\\sqrt{d}$ divides the variance by d, so it is about 1 for every width.\n\nThe engine draws {0} queries and keys and multiplies them all.',
    '大分数从何而来？点积是 d 项之和。若 q 和 k 的各分量独立、方差为 1，每一项的方差是 1，总和的方差就是 d：头越宽，分数自然越大。除以 $\\sqrt{d}$ 使方差除以 d，于是无论多宽都约为 1。\n\n引擎抽取 {0} 组查询和键，两两相乘。',
  ],
  'l.scale.2.act': [
    'Find a d for which the variance of the raw products lies between 50 and 80. That of the scaled ones stays near 1.',
    '找一个 d，使原始点积的方差在 50 到 80 之间；缩放后的方差仍接近 1。',
  ],
  'l.scale.2.done': [
    'Right. The variance of the products is about d, and about 1 after the division by √d.',
    '做对了。点积的方差约为 d，除以 √d 后约为 1。',
  ],
  'l.scale.2.hint': ['The raw variance is {0}.', '现在原始方差是 {0}。'],
  'scale.raw': ['raw products', '原始点积'],
  'scale.scaled': ['divided by √d', '除以 √d 之后'],
  'scale.variance': ['variance {0}', '方差 {0}'],
  'scale.slope': ['slope p(1 − p)', '斜率 p(1 − p)'],
  'scale.d': ['head size d', '头宽 d'],
  'scale.logits': ['scores', '分数'],
  'l.matrix': ['The whole score matrix', '完整的分数矩阵'],
  'l.matrix.1': [
    'All queries at once: $QK^{\\top}$. The row says {q|who asks}, the column {k|who is read}. Each row is one softmax of its own; rows know nothing of each other, so they can be computed in any order or all at the same time. (The weights are those of the scaled products, as before.)\n\nThe matrix need not be symmetric: that B reads C strongly says nothing about C reading B, because asking and being asked use different projections.',
    '所有查询一起算：$QK^{\\top}$。行表示{q|谁在问}，列表示{k|谁被读}。每一行各做一次 softmax，行与行互不相干，先算后算或同时算都可以。（权重由缩放后的点积得出，与前面相同。）\n\n矩阵不必对称：B 很看重 C，并不说明 C 也看重 B，因为提问和被问用的是不同的投影。',
  ],
  'l.matrix.1.act': ['Choose the cell where B reads C.', '选中“B 读 C”的那一格。'],
  'l.matrix.1.done': [
    'Right. Row B, column C: B asks with its query, C answers with its key, and their product is 2.',
    '做对了。第 B 行第 C 列：B 用查询提问，C 用键回答，点积为 2。',
  ],
  'l.matrix.1.hint': ['Rows ask, columns are read.', '行是提问者，列是被读者。'],
  'l.matrix.2': [
    'Here C reads A with 2 and A reads C with 1. The difference comes from the projections alone: $QK^{\\top}=X\\,W_QW_K^{\\top}X^{\\top}$. What stands between the two X decides the symmetry.',
    '这里 C 读 A 的分数是 2，A 读 C 的是 1。差别只来自投影：$QK^{\\top}=X\\,W_QW_K^{\\top}X^{\\top}$，夹在两个 X 中间的部分决定是否对称。',
  ],
  'l.matrix.2.act': [
    'Change W_K so that the score matrix becomes symmetric. Not all scores may be 0.',
    '改动 W_K，使分数矩阵对称，且不能全为 0。',
  ],
  'l.matrix.2.done': [
    'Right. What stands between X and its transpose is now symmetric, so asking and being asked are alike.',
    '做对了。夹在两个 X 中间的部分现在是对称的，提问与被问便没有差别。',
  ],
  'l.matrix.2.hint.zero': [
    'Now all scores are 0: symmetric, but nothing is told apart. Find a W_K that leaves some.',
    '现在分数全是 0：虽然对称，却什么也分不出来。请找一个能留下分数的 W_K。',
  ],
  'l.matrix.2.hint': [
    'The score of row {0}, column {1} differs from its mirror image. What if W_K were like W_Q?',
    '行 {0} 列 {1} 与其对称位置不相等。如果 W_K 和 W_Q 一样呢？',
  ],
  'l.cross': ['An action reads an image', '动作读取图像'],
  'l.cross.1': [
    'A robot’s action token asks; three visual tokens answer: a red block, a blue bowl, and their relation. Its query $[1,1]$ fits the relation’s key $[1,1]$ best: products 1, 1, 2; weights 0.248, 0.248, 0.503; output $[1.000, 1.497]$.\n\nThe action does not change what the image says. It changes **what it takes** from it. Another query, another mix of the same three values.',
    '机器人的动作词元提问，三个视觉词元回答：红方块、蓝碗、二者的关系。查询 $[1,1]$ 与“关系”的键 $[1,1]$ 最匹配：点积 1、1、2，权重 0.248、0.248、0.503，输出 $[1.000, 1.497]$。\n\n动作并不改变图像的内容，它改变的是**自己取走什么**。换一个查询，就是同样三个值的另一种混合。',
  ],
  'l.cross.1.act': [
    'Change the query so that the action reads the blue bowl with more than 0.6.',
    '改动查询，使动作对“蓝碗”的权重超过 0.6。',
  ],
  'l.cross.1.done': [
    'Right. The image said the same as before; another query took something else from it.',
    '做对了。图像没有变；换了查询，取走的就不同。',
  ],
  'l.cross.1.hint.edited': [
    'The blue bowl has weight {0}, but by an edit of the row. Put the numbers back and change the query instead.',
    '“蓝碗”的权重是 {0}，但那是因为你改动了这一行。请复原数字，改动查询。',
  ],
  'l.cross.1.hint': ['The blue bowl has weight {0}. Its key is [0, 1].', '“蓝碗”的权重是 {0}，它的键是 [0, 1]。'],
  'l.cross.2': [
    'A policy with 8 action queries that looks at 196 visual tokens (14 × 14 patches) has a score matrix of 8 × 196 in each head: one row an action, one column a patch. Its rows sum to 1; its columns need not.\n\nIf the image attends to itself, every patch asks every patch. The figure has both matrices at one scale, and what the engine computed for each of the eight actions, laid out as the image.',
    '一个策略有 8 个动作查询，看 196 个视觉词元（14 × 14 个小块），每个头的分数矩阵是 8 × 196：一行一个动作，一列一个小块。每行之和为 1，每列则不必。\n\n若图像对自身做注意力，每个小块都要问每个小块。图中按同一比例画出两个矩阵，以及引擎为八个动作各自算出的权重（按图像排列）。',
  ],
  'l.cross.2.act': [
    'How many scores does self-attention over the 196 visual tokens have in one head?',
    '196 个视觉词元的自注意力，一个头有多少个分数？',
  ],
  'l.cross.2.done': [
    'Right. 196 × 196 = 38,416, against 8 × 196 = 1,568 for the eight actions.',
    '做对了。196 × 196 = 38,416；八个动作只要 8 × 196 = 1,568。',
  ],
  'l.cross.2.hint': ['Every one of the 196 asks every one of the 196.', '196 个中的每一个都要问全部 196 个。'],
  'cross.scale': ['both at one scale', '同一比例'],
  answer: ['Answer', '答案'],
  'l.masks': ['Masks, before softmax', '掩码要在 softmax 之前'],
  'l.masks.1': [
    'A causal model must not read the future: B may see A and B, not C. The mask puts $-\\infty$ in the place of the score **before** softmax. $e^{-\\infty}=0$, so C gets exactly 0 and the rest still sums to 1: $[1,1,-\\infty]\\to[0.5,0.5,0]$. (Not scaled here, so that the scores are round.)\n\nZeroing the weight **after** softmax looks alike and is wrong: C has already taken its share of the sum, and the row adds up to less than 1. Worse, C’s score still leaks into the others’ weights.',
    '因果模型不能读未来：B 可以看 A 和 B，不能看 C。掩码在 softmax **之前**把分数换成 $-\\infty$；$e^{-\\infty}=0$，于是 C 恰好得 0，其余仍合计为 1：$[1,1,-\\infty]\\to[0.5,0.5,0]$。（这里没有缩放，分数都是整数。）\n\n在 softmax **之后**把权重置零，看似一样，其实错了：C 已经从总和里拿走一份，这一行合计不足 1；而且 C 的分数仍然影响其他权重。',
  ],
  'l.masks.1.act': [
    'Look at “after softmax” and its sum. Then choose the way in which B cannot see C and the row sums to 1.',
    '先看“softmax 之后”及其合计，再选出既让 B 看不到 C、合计又为 1 的做法。',
  ],
  'l.masks.1.done': [
    'Right. Before softmax the hidden key takes no share, so the rest of the row sums to 1.',
    '做对了。在 softmax 之前遮住，这个键不占份额，本行其余的合计为 1。',
  ],
  'l.masks.1.hint': [
    'Look at both ways: the sum of the row tells them apart.',
    '两种做法都看一看：行的合计能区分它们。',
  ],
  'masks.none': ['no mask', '不加掩码'],
  'masks.before': ['before softmax', 'softmax 之前'],
  'masks.after': ['after softmax', 'softmax 之后'],
  'masks.sum': ['sum of the row', '本行合计'],
  'l.masks.2': [
    'For four tokens the causal mask is a staircase. Position 2 (counted from 0) reads 0, 1 and 2; its mask row is $[0,0,0,-\\infty]$ and its last weight exactly 0. Whatever the value of a masked key is, even NaN: the output keeps every bit, because it is never read.',
    '四个词元的因果掩码像台阶。位置 2（从 0 数起）读 0、1、2，它的掩码行是 $[0,0,0,-\\infty]$，最后一个权重恰为 0。被遮住的键，其值不管是什么，哪怕是 NaN，输出的每一位都不变，因为它从不被读取。',
  ],
  'l.masks.2.act': [
    'Click cells of the mask until it is causal for every position.',
    '点击掩码的格子，使每个位置都符合因果掩码。',
  ],
  'l.masks.2.done': [
    'Right. A staircase: each position reads itself and what came before it.',
    '做对了。掩码呈台阶状：每个位置读自己和之前的。',
  ],
  'l.masks.2.hint': ['Position {0} still sees the wrong tokens.', '位置 {0} 能看到的词元还不对。'],
  'masks.mask': ['mask (click to change)', '掩码（点击切换）'],
  'masks.mask.many': [
    'Choose a score, then mask or show it in the menu of the masked scores.',
    '先选一个分数，再用“掩码后”的菜单遮住或放开它。',
  ],
  'l.cache': ['Training in parallel, writing step by step', '并行训练，逐步生成'],
  'l.cache.1': [
    'To learn “I love robot”, the decoder reads the target **shifted right**: begin mark first. At every position it predicts the word that comes next. The causal mask hides what is right of it, so all positions are trained in one pass, each as if it stood at the end.\n\nRead: `<BOS> I love robot`. Predict: `I love robot <EOS>`.',
    '学习“I love robot”时，解码器读的是**右移**后的目标：开头是起始符。每个位置预测下一个词。因果掩码遮住右边，于是一遍就能训练所有位置，每个位置都像站在句尾。\n\n读入：`<BOS> I love robot`；预测：`I love robot <EOS>`。',
  ],
  'l.cache.1.act': [
    'What does position 2 (counted from 0) predict? Choose the label.',
    '位置 2（从 0 数起）预测什么？请选择标签。',
  ],
  'l.cache.1.done': [
    'Right. Position 2 reads <BOS>, I, love, and is trained to predict robot, all in the same pass as the other positions.',
    '做对了。位置 2 读到 <BOS>、I、love，训练它预测 robot，与其他位置在同一遍里完成。',
  ],
  'l.cache.1.hint': [
    'Position 2 reads <BOS>, I, love. What comes next?',
    '位置 2 读到 <BOS>、I、love，下一个词是什么？',
  ],
  'cache.reads': ['reads', '读入'],
  'cache.predicts': ['predicts', '预测'],
  'cache.position': ['position', '位置'],
  'l.cache.2': [
    'When it writes, the words to the right do not exist yet. Each step adds one row: its query asks, and the keys and values of all earlier rows are needed again. They never change, so they are kept: the **KV cache**. A step then costs one row instead of a whole matrix.\n\nThe cache saves recomputation, not the dependence: word 5 still needs word 4. The engine computes each row alone, against the cache, and compares it with the same row of the parallel pass.',
    '生成时，右边的词还不存在。每一步只添一行：它的查询去问，需要用到前面所有行的键和值。它们不会再变，于是存起来，这就是 **KV 缓存**。一步只需算一行，不必重算整个矩阵。\n\n缓存省下的是重复计算，省不掉先后依赖：第 5 个词仍要等第 4 个词。引擎单独计算每一行（读缓存），再与并行计算的同一行比较。',
  ],
  'l.cache.2.act': [
    'Write all five rows step by step and see the difference to the parallel pass.',
    '一步一步写出全部五行，看看与并行计算相差多少。',
  ],
  'l.cache.2.done': [
    'Right. Row by row against the cache, or all at once under the mask: the same numbers.',
    '做对了。逐行读缓存，或在掩码下一次算完，数字相同。',
  ],
  'l.cache.2.hint': ['{0} of 5 rows are written.', '已写出 {0} / 5 行。'],
  'cache.step': ['Write one row', '写一行'],
  'cache.rows': ['KV cache: rows {0}, numbers {1}', 'KV 缓存：{0} 行，{1} 个数'],
  'cache.difference': ['difference', '差'],
  'cache.stepwise': ['step by step', '逐步'],
  'l.heads': ['Heads and W_O', '多头与 W_O'],
  'l.heads.1': [
    'Several heads read at once, each with projections of its own: one may look at the previous word, another at the subject. Each gives a short vector; put side by side they have the model’s width again: $o^1=[1.2,-0.4]$ and $o^2=[0.5,2.0]$ become $[1.2,-0.4,0.5,2.0]$.\n\n$W_O$ mixes them. With the identity nothing changes. After $W_O$ a head can no longer be told apart: whoever wants to cut a head must do it **before**.',
    '多个头同时阅读，各有自己的投影：有的看前一个词，有的看主语。每个头给出一个短向量，拼起来又回到模型宽度：$o^1=[1.2,-0.4]$ 与 $o^2=[0.5,2.0]$ 拼成 $[1.2,-0.4,0.5,2.0]$。\n\n$W_O$ 再把它们混合。单位矩阵不改变什么。经过 $W_O$ 之后就分不清哪个头了：要切断一个头，必须在它**之前**。',
  ],
  'l.heads.1.act': [
    'Change W_O so that the result is [0.6, −0.2, 0.25, 1.0].',
    '改动 W_O，使结果为 [0.6, −0.2, 0.25, 1.0]。',
  ],
  'l.heads.1.done': [
    'Right. 0.5 on the diagonal halves every number, whichever head it came from.',
    '做对了。对角线上的 0.5 使每个数减半，不论它来自哪个头。',
  ],
  'l.heads.1.hint': [
    'Every number shall be half of what it was: which number stands on the diagonal?',
    '每个数都要变成一半：对角线上应是几？',
  ],
  'heads.concat': ['side by side', '拼接'],
  'heads.result': ['result', '结果'],
  'l.block': ['The pre-norm block', '前置归一化块'],
  'l.block.1': [
    'Around attention stands a block. The row x goes on unchanged along the **residual** path; what attention found is added to it: $[1,2]+[0.5,-0.5]=[1.5,1.5]$. Before each part a norm brings the row to mean 0 and variance 1: $[1,3]\\to[-1,1]$. Then a small network works on every token alone: ReLU turns $[-1,2,1]$ into $[0,2,1]$, and its output is added again: $[1,3]+[1,0]=[2,3]$.\n\nAttention moves information **between** tokens. The network works **within** one.',
    '注意力外面是一个块。行 x 沿**残差**通路原样前行，注意力的结果加到它上面：$[1,2]+[0.5,-0.5]=[1.5,1.5]$。每一部分之前，归一化把这一行变成均值 0、方差 1：$[1,3]\\to[-1,1]$。接着一个小网络逐个处理词元：ReLU 把 $[-1,2,1]$ 变成 $[0,2,1]$，其输出再次相加：$[1,3]+[1,0]=[2,3]$。\n\n注意力在词元**之间**搬运信息，小网络在词元**内部**加工。',
  ],
  'l.block.1.act': [
    'Find another input of the norm, not [1, 3], that also becomes [−1, 1].',
    '为归一化找另一个输入（不是 [1, 3]），也得到 [−1, 1]。',
  ],
  'l.block.1.done': [
    'Right. The norm keeps only the order and the proportions; where the numbers lie and how far apart is forgotten.',
    '做对了。归一化只留下次序和比例，数值的高低和间距都被忘掉。',
  ],
  'l.block.1.hint': [
    'The norm gives [{0}, {1}]. It forgets the mean and the spread: what remains of [0, 10]?',
    '归一化得到 [{0}, {1}]。它会忘掉均值和幅度：[0, 10] 会剩下什么？',
  ],
  'block.own': [
    'Four steps, each with numbers of its own: no line continues the one above it.',
    '四步各用各的数字，并不上下衔接。',
  ],
  'block.residual': ['residual', '残差'],
  'block.attention': ['attention', '注意力'],
  'block.norm': ['norm', '归一化'],
  'block.relu': ['ReLU', 'ReLU'],
  'block.mlp': ['network', '小网络'],
  'block.input': ['input', '输入'],
  'l.positions': ['Positions and RoPE', '位置与 RoPE'],
  'l.positions.1': [
    'Attention alone does not know order: shuffle keys and values together and nothing changes. **RoPE** turns each pair of numbers of a {q|query} by an angle that grows with its position, and each {k|key} likewise. A dot product depends on the two lengths, which turning keeps, and on the angle **between** them, so the score depends only on the difference of the positions: (5, 2) scores like (105, 102).\n\nMove both sliders. Width 2, one pair, one radian a position.',
    '注意力本身不知道次序：把键和值一起打乱，结果不变。**RoPE** 把{q|查询}的每一对数按位置旋转一个角度，{k|键}也一样。点积取决于两个向量的长度（旋转不改变长度）和它们**之间**的夹角，因此分数只与位置之差有关：(5, 2) 与 (105, 102) 同分。\n\n拖动两个滑块试试。宽度 2，一对数，每个位置一弧度。',
  ],
  'l.positions.1.act': [
    'Find two other positions that give the same score as query 5, key 2.',
    '另找一对位置，使分数与“查询 5、键 2”相同。',
  ],
  'l.positions.1.done': [
    'Right. The difference is 3 again: both vectors have turned by the same further angle.',
    '做对了。差仍是 3：两个向量又转过了同样的角度。',
  ],
  'l.positions.1.hint.same': ['These are 5 and 2 themselves. Move both.', '这正是 5 和 2。请把两个都移动。'],
  'l.positions.1.hint': [
    'The score is {0}; for (5, 2) it is {1}. Keep the difference.',
    '现在分数是 {0}；(5, 2) 时是 {1}。保持差值不变。',
  ],
  'positions.query': ['position of the query', '查询的位置'],
  'positions.key': ['position of the key', '键的位置'],
  'positions.difference': ['query − key', '查询 − 键'],
  'positions.before': ['before turning', '旋转前'],
  'positions.both': ['Move both by one', '同时移动一位'],
  'positions.score': ['score', '分数'],
  'l.cost': ['What it costs', '计算代价'],
  'l.cost.1': [
    'n tokens have $n^2$ scores in every head of every layer. 1,024 tokens: 1,048,576 scores, 2 MiB in 16-bit numbers. Twice the tokens, four times the scores: 4,194,304, 8 MiB.\n\nThe work stays, the memory need not. A **tiled** kernel walks over the keys in blocks and keeps, for each row, a running maximum, a running sum and the mix so far. The whole matrix never exists; the result is the same.',
    'n 个词元，每层每头都有 $n^2$ 个分数。1,024 个词元：1,048,576 个分数，以 16 位存储需 2 MiB。词元加倍，分数变四倍：4,194,304 个，8 MiB。\n\n计算量省不掉，内存却可以省。**分块**计算的内核按块走过所有键，每行只保留当前最大值、当前总和与已有的混合。整个矩阵从不存在，结果却一样。',
  ],
  'l.cost.1.act': [
    'How many tokens make one head’s scores fill 2 GiB in 16-bit numbers? Move the slider there.',
    '多少个词元时，一个头的分数以 16 位存储会占 2 GiB？把滑块移到那里。',
  ],
  'l.cost.1.done': [
    'Right. 32,768² scores of 2 bytes are 2 GiB, for one head of one layer. The tiled kernel keeps 256 KiB of maxima and sums and one tile, beside the output itself.',
    '做对了。32,768² 个分数，每个 2 字节，一层一个头就是 2 GiB。分块计算的内核除了输出本身，只留 256 KiB 的最大值与总和，外加一个小块。',
  ],
  'l.cost.1.hint': ['{0} tokens need {1}.', '{0} 个词元需要 {1}。'],
  'cost.tokens': ['tokens n', '词元数 n'],
  'cost.scores': ['scores a head', '每个头的分数'],
  'cost.matrix': ['as a matrix, 16 bit', '存成矩阵，16 位'],
  'cost.rows': ['tiled: maximum and sum per row, 32 bit', '分块：每行存最大值与总和，32 位'],
  'cost.one': ['one tile of {0} × {0} scores, 32 bit', '一块 {0} × {0} 个分数，32 位'],
  'cost.mix': [
    'the mix so far, which becomes the output: {0} numbers per row',
    '已有的混合，最后就是输出：每行 {0} 个数',
  ],
  'cost.tile': ['tile {0} of {1}: only this one is in memory', '第 {0} / {1} 块：内存里只有这一块'],
  'visual.action': ['action', '动作'],
  'visual.red': ['red block', '红方块'],
  'visual.blue': ['blue bowl', '蓝碗'],
  'visual.relation': ['relation', '关系'],
  'l.importance': ['Weight is not importance', '权重不等于重要性'],
  'l.importance.1': [
    'A weight says where a row **looked**. What matters is what changes when the edge is **cut**: forbid the key, let the others share, compare the outputs. The two can disagree. A heavy key whose value is like the mix of the others changes nothing; a light key with a far-off value may change much.\n\nExactly: cutting key j moves the output by $\\tfrac{w_j}{1-w_j}\\,(o-v_j)$. The weight is only half of the story; the value is the other.',
    '权重说明一行**看向**哪里。真正要问的是：**切断**这条边会改变什么？禁止这个键，让其余的分担，再比较输出。两者可能不一致：权重很大、但值与其他值的混合相近的键，切断毫无影响；权重很小、值却很远的键，影响可能很大。\n\n准确地说，切断键 j 使输出移动 $\\tfrac{w_j}{1-w_j}\\,(o-v_j)$。权重只说了一半，另一半是值。',
  ],
  'l.importance.1.act': [
    'Change the values so that the key with the most weight matters least: below 0.01 when cut.',
    '改动值，使权重最大的键最不起作用：切断后的影响小于 0.01。',
  ],
  'l.importance.1.done': [
    'Right. The value of the heaviest key is what the others give without it: cut it, and nothing is missing.',
    '做对了。权重最大的键，其值正是其余的键混合的结果：切断它，什么也不缺。',
  ],
  'l.importance.1.hint.flat': [
    'Now cutting any key changes the output by less than 0.05: the values say nearly the same. Make the others differ more.',
    '现在切断哪一个键，输出的改变都小于 0.05：这些值几乎一样。请让其他的值差别更大。',
  ],
  'l.importance.1.hint': [
    'Cutting the heaviest key changes the output by {0}. Which value would make no difference?',
    '切断权重最大的键，输出改变 {0}。它的值是多少才会毫无差别？',
  ],
  'importance.looks': ['looks at: weight, 0 to 1', '看向：权重，0 到 1'],
  'importance.matters': ['matters: change when cut, 0 to {0}', '起作用：切断后的变化，0 到 {0}'],

  'st.title': ['Self-test', '自测'],
  'st.lead': [
    'Nine questions. Work them out, type, press or choose, and let the engine check. New numbers as often as you like.',
    '共九题。自己算好，填写、点选，由引擎检查。想练几次就换几次新数字。',
  ],
  'st.fresh': ['New numbers', '换一组数字'],
  'st.solution': ['Worked solution', '解答过程'],
  'st.check': ['Check', '检查'],
  'st.count': ['{0} of 9 right', '答对 {0} / 9'],
  'st.blank': [
    'Something is not answered yet: type a number in every field, choose one of each row.',
    '还有没作答的：每个空格填入数字，每一排选出一个。',
  ],
  'st.wrong': ['Not yet. Different from the engine’s: {0}.', '还不对：有 {0} 处与引擎不同。'],
  'st.1': [
    'The query is {0}, the keys are {1} and {2}. What are the scores (not scaled)?',
    '查询为 {0}，键为 {1} 和 {2}。未缩放的分数各是多少？',
  ],
  'st.2': [
    'The scores are {0} and {1}. The values are {2} and {3}. What are the weights and the output?',
    '分数是 {0} 和 {1}，值为 {2} 和 {3}。权重与输出各是多少？',
  ],
  'st.3': [
    'The dot product is {0}, the head size {1}. What is the scaled score?',
    '点积为 {0}，头宽为 {1}。缩放后的分数是多少？',
  ],
  'st.4': [
    '{0} action queries read {1} visual tokens. How many rows and columns does the score matrix have? How many scores does self-attention over the image have?',
    '{0} 个动作查询读取 {1} 个视觉词元。分数矩阵有几行几列？图像自注意力有多少个分数？',
  ],
  'st.5': [
    'The target has {0} words. With the begin mark first, the decoder reads {1} rows. What does position {2} (from 0) predict? Choose it, then press every token that position reads.',
    '目标有 {0} 个词。前面加上起始符，解码器读入 {1} 行。位置 {2}（从 0 数起）预测什么？先选出它，再点出这个位置能读到的每一个词元。',
  ],
  'st.6': [
    'Causal, length {0}. Press the tokens that position {1} (from 0) reads, and leave the hidden ones.',
    '因果掩码，长度 {0}。点出位置 {1}（从 0 数起）能读的词元，读不到的不要点。',
  ],
  'st.7': [
    'Two heads give {0} and {1}. W_O is {2} times the identity. What is the result?',
    '两个头给出 {0} 和 {1}，W_O 是单位矩阵的 {2} 倍。结果是什么？',
  ],
  'st.8': [
    'A text grows from {0} to {1} tokens. How many scores does one head compute before and after, and how many times as many is that?',
    '文本从 {0} 个词元变为 {1} 个。一个头的分数之前、之后各有多少？变为几倍？',
  ],
  'st.9': [
    'The model is {0} wide and has {1} heads. What is the head size, and by what are scores divided?',
    '模型宽度 {0}，共 {1} 个头。头宽是多少？分数要除以几？',
  ],
  'st.s1': ['Multiply entry by entry and add: {0} and {1}.', '逐项相乘再相加：{0}；{1}。'],
  'st.s2': [
    'Only the difference counts: e to the scores are as 1 to {0}, so the weights are 1/{1} and {0}/{1}. Output: ({2} + {0} · {3}) / {1} = {4}.',
    '只有差值起作用：e 的分数次幂之比是 1 比 {0}，权重是 1/{1} 和 {0}/{1}。输出：({2} + {0} · {3}) / {1} = {4}。',
  ],
  'st.s3': ['{0} / √{1} = {0} / {2} = {3}.', '{0} / √{1} = {0} / {2} = {3}。'],
  'st.s4': [
    'Rows ask, columns are read: {0} × {1}. In self-attention each of the {1} asks each: {1}² = {2}.',
    '行是提问者，列是被读者：{0} × {1}。自注意力中 {1} 个各问一遍：{1}² = {2}。',
  ],
  'st.s5': [
    'Position 0 reads the begin mark and predicts word 1. So position {0} predicts word {1} and sees {1} tokens, itself included.',
    '位置 0 读起始符，预测第 1 个词。所以位置 {0} 预测第 {1} 个词，能看到 {1} 个词元（含自己）。',
  ],
  'st.s6': [
    'It reads itself and what came before: 0 to {0}. The rest is −∞ before softmax and weighs exactly 0.',
    '它读自己和之前的：0 到 {0}。其余在 softmax 之前为 −∞，权重恰为 0。',
  ],
  'st.s7': ['Side by side: {0}. Each times {1}: {2}.', '拼接：{0}。各乘 {1}：{2}。'],
  'st.s8': ['{0}² = {1}, {2}² = {3}; {3} / {1} = {4}.', '{0}² = {1}，{2}² = {3}；{3} / {1} = {4}。'],
  'st.s9': ['{0} / {1} = {2}, and √{2} = {3}.', '{0} / {1} = {2}，√{2} = {3}。'],
  'st.f.score': ['score {0}', '分数 {0}'],
  'st.f.weight': ['weight {0}', '权重 {0}'],
  'st.f.output': ['output {0}', '输出 {0}'],
  'st.f.rows': ['rows', '行'],
  'st.f.columns': ['columns', '列'],
  'st.f.scores': ['scores', '分数个数'],
  'st.f.word': ['predicts', '预测'],
  'st.f.nth': ['word {0}', '词 {0}'],
  'st.f.reads': ['reads', '读取'],
  'st.f.token': ['token {0}', '词元 {0}'],
  'st.f.result': ['result {0}', '结果 {0}'],
  'st.f.before': ['before', '之前'],
  'st.f.after': ['after', '之后'],
  'st.f.times': ['times', '倍数'],
  'st.f.size': ['head size', '头宽'],
  'st.f.divisor': ['divisor', '除数'],
} as const satisfies Words;
