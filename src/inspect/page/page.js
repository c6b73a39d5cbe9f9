'use strict';
// One selection (attention, layer, head, measure, query, key) seen through linked views. Tokens only ever become text
// nodes: nothing of the data is parsed as HTML.
(() => {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  const make = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // ---- Words ----
  const words = {
    en: {
      attention: 'attention', layer: 'layer', head: 'head', measure: 'measure', logarithmic: 'logarithmic', heads: 'Heads', text: 'Text',
      matrix: 'Matrix', lines: 'Lines', outcomes: 'Before and after the edits', keys: 'keys', queries: 'queries', key: 'key', query: 'query',
      masked: 'masked', unknown: 'not measured', mean: 'mean', edits: 'edits', on: 'effect of cutting an edge on', base: 'base', edited: 'edited', change: 'change',
      attributions: 'What each token adds to the target', sum: 'sum', target: 'target', baseline: 'baseline',
      completeness: 'completeness error', steps: 'steps', all: 'all', row: token => `Row of the query “${token}”`, largest: (shown, all) => `the ${shown} largest of ${all}`, none: 'numbers of heads',
      language: '中文', languageLabel: '切换到中文', theme: 'Light or dark', help: 'Keyboard',
      matrixLabel: (name, rows, columns) => `${name}: matrix of ${rows} queries by ${columns} keys. Arrow keys walk through the cells.`,
      help_list: [['← →', 'previous and next key'], ['↑ ↓', 'previous and next query'], ['[ ]', 'previous and next head'], ['{ }', 'previous and next layer'],
        ['Esc', 'let go of the key'], ['?', 'this list']],
    },
    zh: {
      attributions: '各词元对目标的贡献', sum: '总和', target: '目标', baseline: '基线', completeness: '完备性误差', steps: '步', all: '全部',
      attention: '注意力', layer: '层', head: '头', measure: '量', logarithmic: '对数标度', heads: '各头一览', text: '文本', matrix: '矩阵', lines: '连线',
      outcomes: '编辑前后', keys: '键', queries: '查询', key: '键', query: '查询', masked: '被掩码', unknown: '未测量', mean: '平均', edits: '编辑',
      on: '切断一条边的效应，对象', base: '原来', edited: '编辑后', change: '变化', row: token => `查询“${token}”的一行`, largest: (shown, all) => `共 ${all} 个，列出最大的 ${shown} 个`,
      none: '各头数值', language: 'English', languageLabel: 'Switch to English', theme: '浅色或深色', help: '键盘',
      matrixLabel: (name, rows, columns) => `${name}：${rows} 个查询、${columns} 个键的矩阵，用方向键逐格移动。`,
      help_list: [['← →', '上一个、下一个键'], ['↑ ↓', '上一个、下一个查询'], ['[ ]', '上一个、下一个头'], ['{ }', '上一层、下一层'], ['Esc', '放开所选的键'], ['?', '本列表']],
    },
  };
  const names = {
    encoder: 'Encoder self-attention', decoder: 'Decoder self-attention', cross: 'Cross-attention', write: 'weight × norm', first_order: 'first-order effect',
    exact: 'exact effect', integrated_gradients: 'integrated gradients', gradient_input: 'gradient × input', value_zeroing: 'value zeroing',
  };
  const namesChinese = {
    encoder: '编码器自注意力', decoder: '解码器自注意力', cross: '交叉注意力', weight: '权重', write: '权重 × 范数', first_order: '一阶效应',
    exact: '精确效应', integrated_gradients: '积分梯度', gradient_input: '梯度 × 输入', rollout: '注意力展开', value_zeroing: '值置零', source: '源文', target: '译文', text: '文本', entropy: '熵', logit: '逻辑值', nats: '奈特',
  };
  let language = data.language;
  const say = word => words[language][word];
  const spelled = name => (language === 'zh' ? namesChinese[name] : names[name]) || name;
  // "cross rollout": a method's own attention, of all heads together.
  const methods = ['rollout', 'value zeroing'];
  const methodOf = name => methods.find(method => name.endsWith(' ' + method));
  const named = name => {
    const method = methodOf(name);
    if (!method) return spelled(name);
    return spelled(name.slice(0, -1 - method.length)) + (language === 'zh' ? '，' : ', ') + spelled(method.replace(' ', '_'));
  };
  const withUnit = part => named(part.name) + (part.unit ? ` (${named(part.unit)})` : '');
  const numbered = (what, number) => number < 0 ? say('mean') : String(number);

  // ---- Numbers ----
  const bytesOf = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const floatsOf = part => part.floats || (part.floats = new Float32Array(bytesOf(part.values).buffer));
  const minus = text => text.replaceAll('-', '−');
  const three = value => {
    if (Number.isNaN(value)) return '–';
    if (value === 0) return '0';
    const size = Math.abs(value);
    return minus(size >= 0.0005 && size < 1e5 ? value.toFixed(3) : value.toExponential(1).replace('e+', 'e'));
  };
  // Shares stay in three decimals; sizes and effects may all be small, and then need more.
  const inPlace = (measure, value) => measure.kind === 'share' && value !== 0 && Math.abs(value) < 0.0005 ? '0.000' : three(value);
  // The shortest decimal that is this float32.
  const exact = value => {
    if (!Number.isFinite(value)) return String(value);
    for (let digits = 6; digits < 9; ++digits) {
      const text = value.toPrecision(digits);
      if (Math.fround(+text) === value) return String(+text);
    }
    return String(+value.toPrecision(9));
  };
  const tick = value => minus(String(+value.toPrecision(3)));
  const roundEnd = largest => {
    if (!(largest > 1e-30)) return 1;
    const power = 10 ** Math.floor(Math.log10(largest) + 1e-9);
    for (const mantissa of [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8]) if (largest <= mantissa * power * (1 + 1e-6)) return mantissa * power;
    return 10 * power;
  };

  // ---- The selection, and what it points to ----
  const chosen = {attention: 0, layer: 0, head: 0, measure: 0, query: 0, key: -1};  // indices; key -1: none
  let peek = null;  // {query, key} under the pointer
  let logarithmic = false;
  const now = () => ({...chosen, ...peek});
  const attentionNow = () => data.attentions[chosen.attention];
  const measureNow = () => attentionNow().measures[chosen.measure];
  const keysOf = attention => data.texts[attention.key_text].tokens;
  const queriesOf = attention => data.texts[attention.query_text].tokens;
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const maskOf = attention => attention.masked && (attention.mask || (attention.mask = bytesOf(attention.masked)));
  const isMasked = (attention, query, key) => !!attention.masked && maskOf(attention)[query * keysOf(attention).length + key] !== 0;
  const matrixOf = (attention, measure, layer, head) => {
    const cells = queriesOf(attention).length * keysOf(attention).length;
    const from = (layer * attention.heads.length + head) * cells;
    return floatsOf(measure).subarray(from, from + cells);
  };
  const largestIn = (attention, values) => {
    const mask = maskOf(attention), cells = queriesOf(attention).length * keysOf(attention).length;
    let largest = 0;
    for (let i = 0; i < values.length; ++i) if ((!mask || !mask[i % cells]) && Math.abs(values[i]) > largest && Math.abs(values[i]) < Infinity) largest = Math.abs(values[i]);
    return largest;
  };
  const scaleOf = (measure, largest) => {
    const signed = measure.kind === 'effect', log = logarithmic && !signed;
    return {signed, log, high: log ? 10 ** Math.ceil(Math.log10(largest > 1e-30 ? largest : 1) - 1e-9) : roundEnd(largest)};
  };
  // 0..1, or -1..1 where signed.
  const placeOn = (scale, value) => scale.signed ? clamp(value / scale.high, -1, 1)
    : scale.log ? (value <= 0 ? 0 : clamp(1 + Math.log10(value / scale.high) / 3, 0, 1)) : clamp(value / scale.high, 0, 1);

  // ---- Colours ----
  let theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const ramps = {};
  for (const [name, text] of Object.entries(data.ramps)) {
    ramps[name] = [];
    for (let i = 0; i < 256; ++i) ramps[name].push('#' + text.slice(6 * i, 6 * i + 6));
  }
  const indexOn = (scale, value) => Math.round(scale.signed ? 128 + 127 * placeOn(scale, value) : 255 * placeOn(scale, value));
  const colourOf = (scale, value) => ramps[theme + (scale.signed ? '_signed' : '')][indexOn(scale, value)];
  const luminance = colour => {
    const part = at => {
      const c = parseInt(colour.slice(at, at + 2), 16) / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
  };
  const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const inkOn = colour => {
    const contrast = other => {
      const a = luminance(colour) + 0.05, b = luminance(other) + 0.05;
      return Math.max(a, b) / Math.min(a, b);
    };
    return contrast(css('ink')) >= contrast(css('paper')) ? css('ink') : css('paper');
  };

  const prepare = (canvas, width, height) => {
    const ratio = Math.min(window.devicePixelRatio || 1, 8192 / Math.max(width, height, 1));
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    const pen = canvas.getContext('2d');
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return pen;
  };
  const hatch = pen => {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const inside = tile.getContext('2d');
    inside.strokeStyle = css('hatch');
    inside.beginPath();
    for (const shift of [-6, 0, 6]) inside.moveTo(shift - 1, 7), inside.lineTo(shift + 7, -1);
    inside.stroke();
    return pen.createPattern(tile, 'repeat');
  };
  // Colours of a matrix, one pixel a cell; masked and unmeasured cells stay clear.
  const paintCells = (attention, values, scale) => {
    const rows = queriesOf(attention).length, columns = keysOf(attention).length, mask = maskOf(attention);
    const tile = document.createElement('canvas');
    tile.width = columns;
    tile.height = rows;
    const pen = tile.getContext('2d'), image = pen.createImageData(columns, rows);
    const palette = ramps[theme + (scale.signed ? '_signed' : '')].map(c => parseInt(c.slice(1), 16));
    for (let i = 0; i < rows * columns; ++i) {
      if ((mask && mask[i]) || Number.isNaN(values[i])) continue;
      const colour = palette[indexOn(scale, values[i])];
      image.data.set([colour >> 16, colour >> 8 & 255, colour & 255, 255], 4 * i);
    }
    pen.putImageData(image, 0, 0);
    return tile;
  };
  const paintMask = (pen, attention, x, y, cell) => {
    const rows = queriesOf(attention).length, columns = keysOf(attention).length;
    if (!attention.masked) return;
    pen.fillStyle = hatch(pen);
    for (let q = 0; q < rows; ++q)
      for (let k = 0; k < columns;) {
        const from = k;
        while (k < columns && isMasked(attention, q, k)) ++k;
        if (k > from) pen.fillRect(x + from * cell, y + q * cell, (k - from) * cell, cell);
        else ++k;
      }
  };

  const shown = token => token.text;
  const fit = (pen, text, width) => {
    if (pen.measureText(text).width <= width) return text;
    const letters = Array.from(text);
    while (letters.length && pen.measureText(letters.join('') + '…').width > width) letters.pop();
    return letters.join('') + '…';
  };

  // ---- Views ----
  let scale = scaleOf({kind: 'share'}, 1);
  let values = new Float32Array(0);
  let geometry = null;  // of the matrix

  const fill = (select, texts, index) => {
    select.replaceChildren(...texts.map((text, i) => {
      const option = make('option', '', text);
      option.value = i;
      return option;
    }));
    select.value = index;
  };

  const drawMenus = () => {
    const attention = attentionNow();
    fill($('attention'), data.attentions.map(one => named(one.name)), chosen.attention);
    fill($('layer'), attention.layers.map(one => numbered('layer', one)), chosen.layer);
    fill($('head'), attention.heads.map(one => methodOf(attention.name) ? say('all') : numbered('head', one)), chosen.head);
    fill($('measure'), attention.measures.map(withUnit), chosen.measure);
    const metric = $('metric').value;
    fill($('metric'), [say('none'), ...attention.metrics.map(withUnit)], metric && metric <= attention.metrics.length ? metric : Math.min(1, attention.metrics.length));
    $('metric').hidden = attention.metrics.length === 0;
    $('logarithmic').checked = logarithmic;
    $('logarithmic').disabled = measureNow().kind === 'effect';
  };

  const drawWords = () => {
    document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
    for (const element of document.querySelectorAll('[data-say]')) element.textContent = say(element.dataset.say);
    $('title').textContent = data.model || 'Attend';
    const parts = [];
    const colon = language === 'zh' ? '：' : ': ';
    if (data.fingerprint) parts.push(data.fingerprint);
    if (data.target) parts.push(say('on') + colon + data.target);
    if (data.edits.length) parts.push(say('edits') + colon + data.edits.join(language === 'zh' ? '；' : '; '));
    if (data.note) parts.push(data.note);
    $('caption').textContent = parts.join(' · ');
    $('language').textContent = say('language');
    $('language').setAttribute('aria-label', say('languageLabel'));
    for (const id of ['theme', 'help']) {
      $(id).title = say(id);
      $(id).setAttribute('aria-label', say(id));
    }
    const list = make('dl');
    for (const [keys, meaning] of say('help_list')) {
      const term = make('dt');
      for (const key of keys.split(' ')) term.append(make('kbd', '', key), ' ');
      list.append(term, make('dd', '', meaning));
    }
    $('keys-help').replaceChildren(list);
  };

  const drawWall = () => {
    const attention = attentionNow(), measure = measureNow(), wall = $('wall');
    const rows = queriesOf(attention).length, columns = keysOf(attention).length;
    const common = scaleOf(measure, largestIn(attention, floatsOf(measure)));
    const side = 56, cell = side / Math.max(rows, columns);
    wall.style.gridTemplateColumns = `auto repeat(${attention.heads.length}, auto)`;
    const metric = attention.metrics[$('metric').value - 1];
    const parts = [make('span', 'name', `${say('head')} →\n${say('layer')} ↓`)];
    for (const head of attention.heads) parts.push(make('span', 'name', numbered('head', head)));
    attention.layers.forEach((layer, l) => {
      parts.push(make('span', 'name', numbered('layer', layer)));
      attention.heads.forEach((head, h) => {
        const button = make('button');
        button.type = 'button';
        button.tabIndex = l === chosen.layer && h === chosen.head ? 0 : -1;
        button.setAttribute('aria-pressed', l === chosen.layer && h === chosen.head);
        const number = metric ? floatsOf(metric)[l * attention.heads.length + h] : undefined;
        button.setAttribute('aria-label', `${say('layer')} ${numbered('layer', layer)}, ${say('head')} ${numbered('head', head)}` + (metric ? `, ${withUnit(metric)} ${three(number)}` : ''));
        const canvas = make('canvas');
        const pen = prepare(canvas, Math.max(1, Math.round(columns * cell)), Math.max(1, Math.round(rows * cell)));
        pen.imageSmoothingEnabled = rows > 2 * side;
        pen.drawImage(paintCells(attention, matrixOf(attention, measure, l, h), common), 0, 0, columns * cell, rows * cell);
        paintMask(pen, attention, 0, 0, cell);
        button.append(canvas);
        if (metric) {
          const text = make('span', '', three(number));
          text.title = exact(number);
          button.append(text);
        }
        button.addEventListener('click', () => choose({layer: l, head: h}));
        parts.push(button);
      });
    });
    wall.replaceChildren(...parts);
  };

  const tokenList = (list, tokens, onPeek, onPin, part) => {
    list.replaceChildren(...tokens.map((token, index) => {
      const item = make(part, (token.special ? 'special ' : '') + (token.blank_before || token.special ? 'apart' : ''), shown(token));
      item.dir = 'auto';
      item.addEventListener('pointerenter', event => event.pointerType === 'mouse' && onPeek(index));
      item.addEventListener('pointerleave', event => event.pointerType === 'mouse' && look(null));
      item.addEventListener('click', () => onPin(index));
      if (part === 'span') item.setAttribute('role', 'option');
      return item;
    }));
  };

  const drawTokens = () => {
    const attention = attentionNow(), colon = language === 'zh' ? '：' : ': ';
    const keyName = say('keys') + colon + named(data.texts[attention.key_text].name);
    const queryName = say('queries') + colon + named(data.texts[attention.query_text].name);
    $('key-heading').textContent = keyName;
    $('query-heading').textContent = queryName;
    $('key-tokens').setAttribute('aria-label', keyName);
    $('query-tokens').setAttribute('aria-label', queryName);
    const peekKey = key => look({key}), pinKey = key => choose({key: chosen.key === key ? -1 : key});
    const peekQuery = query => look({query}), pinQuery = query => choose({query});
    tokenList($('key-tokens'), keysOf(attention), peekKey, pinKey, 'span');
    tokenList($('query-tokens'), queriesOf(attention), peekQuery, pinQuery, 'span');
    // More lines than that cannot be told apart, and a canvas has its limits.
    const many = Math.max(keysOf(attention).length, queriesOf(attention).length) > 400;
    $('lines-part').hidden = many;
    if (many) return;
    tokenList($('line-keys'), keysOf(attention), peekKey, pinKey, 'li');
    tokenList($('line-queries'), queriesOf(attention), peekQuery, pinQuery, 'li');
  };

  const colourTokens = () => {
    const attention = attentionNow(), {query, key} = now(), columns = keysOf(attention).length;
    Array.from($('key-tokens').children).forEach((item, k) => {
      const value = values[query * columns + k], masked = isMasked(attention, query, k), blank = masked || Number.isNaN(value);
      item.classList.toggle('masked', masked);
      item.classList.toggle('chosen', k === key);
      const colour = blank ? '' : colourOf(scale, value);
      item.style.backgroundColor = colour;
      item.style.color = blank ? '' : inkOn(colour);
      item.title = masked ? say('masked') : Number.isNaN(value) ? say('unknown') : exact(value);
      item.setAttribute('aria-selected', k === key);
      item.setAttribute('aria-label', `${shown(keysOf(attention)[k])}, ${masked ? say('masked') : inPlace(measureNow(), value)}`);
    });
    for (const list of ['query-tokens', 'line-queries'])
      Array.from($(list).children).forEach((item, q) => {
        item.classList.toggle('chosen', q === query);
        if (list === 'query-tokens') item.setAttribute('aria-selected', q === query);
      });
    Array.from($('line-keys').children).forEach((item, k) => item.classList.toggle('chosen', k === key));
  };

  const drawLegend = () => {
    const pen = $('bar').getContext('2d');
    ramps[theme + (scale.signed ? '_signed' : '')].forEach((colour, i) => {
      pen.fillStyle = colour;
      pen.fillRect(Math.floor(i * 160 / 256), 0, 2, 12);
    });
    $('bar-low').textContent = scale.signed ? tick(-scale.high) : scale.log ? '≤' + tick(scale.high / 1000) : '0';
    $('bar-middle').textContent = scale.signed ? '0' : scale.log ? tick(scale.high / 10 ** 1.5) : tick(scale.high / 2);
    $('bar-high').textContent = (scale.signed ? '+' : '') + tick(scale.high);
  };

  const drawMatrix = () => {
    const attention = attentionNow(), keys = keysOf(attention), queries = queriesOf(attention);
    const room = $('matrix').parentElement.clientWidth - 4;
    const measurer = $('cells').getContext('2d');
    const font = `12px ${getComputedStyle(document.documentElement).fontFamily}`;
    measurer.setTransform(1, 0, 0, 1, 0, 0);
    measurer.font = font;
    const narrow = room < 480;
    // Only some labels fit where cells are small; those have their number in front.
    const step = texts => texts.length > 128 ? 20 : 1;
    const labels = (tokens, longest) => tokens.map((token, i) =>
      i % step(tokens) ? '' : fit(measurer, step(tokens) > 1 ? `${i} ${shown(token)}` : shown(token), longest));
    const rowTexts = labels(queries, narrow ? 72 : 130), keyTexts = labels(keys, 96);
    const widest = texts => texts.reduce((most, text) => Math.max(most, measurer.measureText(text).width), 0);
    const left = Math.ceil(widest(rowTexts)) + 12, top = Math.ceil(widest(keyTexts)) + 12;
    const cell = clamp(Math.floor((room - left) / keys.length), Math.max(keys.length, queries.length) <= 128 ? 8 : 1, 28);
    const width = left + keys.length * cell + 2, height = top + queries.length * cell + 2;
    geometry = {left, top, cell, rows: queries.length, columns: keys.length, width, height};
    const pen = prepare($('cells'), width, height);
    prepare($('cross-hair'), width, height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(paintCells(attention, values, scale), left, top, keys.length * cell, queries.length * cell);
    paintMask(pen, attention, left, top, cell);
    if (cell >= 8) {
      pen.fillStyle = css('paper');
      for (let k = 1; k < keys.length; ++k) pen.fillRect(left + k * cell - 1, top, 1, queries.length * cell);
      for (let q = 1; q < queries.length; ++q) pen.fillRect(left, top + q * cell - 1, keys.length * cell, 1);
    }
    pen.strokeStyle = css('rule');
    pen.strokeRect(left - 0.5, top - 0.5, keys.length * cell + 1, queries.length * cell + 1);
    pen.font = font;
    pen.textBaseline = 'middle';
    const apart = texts => step(texts) * Math.ceil(13 / (cell * step(texts)));
    pen.textAlign = 'right';
    rowTexts.forEach((text, q) => {
      if (q % apart(rowTexts)) return;
      pen.fillStyle = css(queries[q].special ? 'soft' : 'ink');
      pen.fillText(text, left - 6, top + (q + 0.5) * cell);
    });
    pen.textAlign = 'left';
    keyTexts.forEach((text, k) => {
      if (k % apart(keyTexts)) return;
      pen.save();
      pen.translate(left + (k + 0.5) * cell, top - 6);
      pen.rotate(-Math.PI / 2);
      pen.fillStyle = css(keys[k].special ? 'soft' : 'ink');
      pen.fillText(text, 0, 0);
      pen.restore();
    });
    $('matrix').setAttribute('aria-label', say('matrixLabel')(withUnit(measureNow()), queries.length, keys.length));
  };

  const drawCrossHair = () => {
    const {query, key} = now(), {left, top, cell, rows, columns, width, height} = geometry;
    const canvas = $('cross-hair'), pen = canvas.getContext('2d');
    pen.clearRect(0, 0, width, height);
    pen.lineWidth = 2;
    pen.strokeStyle = css('query');
    pen.strokeRect(left - 1, top + query * cell - 1, columns * cell + 2, cell + 1);
    if (key < 0) return;
    pen.strokeStyle = css('key');
    pen.strokeRect(left + key * cell - 1, top - 1, cell + 1, rows * cell + 2);
  };

  const drawLines = () => {
    if ($('lines-part').hidden) return;
    const attention = attentionNow(), {query, key} = now(), pitch = 24;
    const rows = queriesOf(attention).length, columns = keysOf(attention).length;
    const room = $('lines').parentElement.clientWidth - 24;
    for (const list of ['line-keys', 'line-queries']) $(list).style.maxWidth = `${(room - 88) / 2}px`;
    const width = clamp(room - $('line-keys').offsetWidth - $('line-queries').offsetWidth, 80, 240);
    const pen = prepare($('line-canvas'), width, Math.max(rows, columns) * pitch);
    const draw = q => {
      for (let k = 0; k < columns; ++k) {
        const value = values[q * columns + k];
        if (Number.isNaN(value) || isMasked(attention, q, k)) continue;
        const size = Math.abs(placeOn(scale, value));
        if (size < 0.02) continue;
        const strong = q === query && (key < 0 || k === key);
        pen.globalAlpha = strong ? size : 0.35 * size;
        const hue = scale.signed ? ramps[theme + '_signed'][value < 0 ? 24 : 232] : ramps[theme][theme === 'light' ? 190 : 150];
        pen.strokeStyle = q === query ? hue : css('hatch');
        pen.lineWidth = q === query ? 2.5 : 1.5;
        pen.beginPath();
        pen.moveTo(2, (k + 0.5) * pitch);
        pen.bezierCurveTo(width / 2, (k + 0.5) * pitch, width / 2, (q + 0.5) * pitch, width - 2, (q + 0.5) * pitch);
        pen.stroke();
      }
    };
    for (let q = 0; q < rows; ++q) if (q !== query) draw(q);
    draw(query);
    pen.globalAlpha = 1;
  };

  const drawRow = () => {
    const attention = attentionNow(), {query, key} = now(), keys = keysOf(attention);
    const row = attention.measures.map(measure => matrixOf(attention, measure, chosen.layer, chosen.head).subarray(query * keys.length, (query + 1) * keys.length));
    $('row-heading').textContent = say('row')(shown(queriesOf(attention)[query]));
    const facts = attention.statistics.map(statistic => {
      const value = floatsOf(statistic)[(chosen.layer * attention.heads.length + chosen.head) * queriesOf(attention).length + query];
      return `${withUnit(statistic)} ${three(value)}`;
    });
    let order = Array.from(keys.keys());
    const most = 200;
    if (order.length > most) {
      const size = k => isMasked(attention, query, k) || Number.isNaN(row[chosen.measure][k]) ? -1 : Math.abs(row[chosen.measure][k]);
      order = order.sort((a, b) => size(b) - size(a)).slice(0, most);
      facts.push(say('largest')(most, keys.length));
    }
    $('row-facts').textContent = facts.join(' · ');
    const head = make('tr');
    const order_of_measures = [chosen.measure, ...attention.measures.keys()].filter((m, i, all) => all.indexOf(m) === i);
    head.append(make('th', '', say('key')), make('th', ''));
    for (const m of order_of_measures) head.append(make('th', 'number', withUnit(attention.measures[m])));
    for (const cell of head.children) cell.scope = 'col';
    const body = make('tbody');
    for (const k of order) {
      const line = make('tr', k === key ? 'chosen' : '');
      const masked = isMasked(attention, query, k), value = row[chosen.measure][k];
      const token = make('td', 'token' + (keys[k].special ? ' special' : ''), shown(keys[k]));
      token.dir = 'auto';
      token.title = shown(keys[k]);
      const track = make('span', 'track' + (masked ? ' masked' : ''));
      if (!masked && !Number.isNaN(value)) {
        const place = placeOn(scale, value), bar = make('i');
        const from = scale.signed ? 48 + 48 * Math.min(0, place) : 0, length = (scale.signed ? 48 : 96) * Math.abs(place);
        bar.style.cssText = `left:${from}px;width:${Math.max(1, length)}px;background:${scale.signed ? ramps[theme + '_signed'][value < 0 ? 60 : 200] : ramps[theme][160]}`;
        track.append(bar);
      }
      const cell = make('td');
      cell.append(track);
      line.append(token, cell);
      for (const m of order_of_measures) {
        const number = make('td', 'number', masked ? '' : inPlace(attention.measures[m], row[m][k]));
        number.title = masked ? say('masked') : Number.isNaN(row[m][k]) ? say('unknown') : exact(row[m][k]);
        line.append(number);
      }
      line.addEventListener('click', () => choose({key: chosen.key === k ? -1 : k}));
      body.append(line);
    }
    const table = make('thead');
    table.append(head);
    $('row').replaceChildren(table, body);
  };

  const drawCell = () => {
    const attention = attentionNow(), {query, key} = now(), keys = keysOf(attention), queries = queriesOf(attention);
    const list = $('cell'), parts = [];
    const add = (term, text, title) => {
      const value = make('dd', '', text);
      if (title) value.title = title;
      parts.push(make('dt', '', term), value);
    };
    add(say('query'), shown(queries[query]));
    let spoken = `${say('query')} ${shown(queries[query])}`;
    if (key >= 0) {
      add(say('key'), shown(keys[key]));
      spoken += `, ${say('key')} ${shown(keys[key])}`;
      for (const measure of attention.measures) {
        const value = matrixOf(attention, measure, chosen.layer, chosen.head)[query * keys.length + key];
        const masked = isMasked(attention, query, key), text = masked ? say('masked') : Number.isNaN(value) ? say('unknown') : inPlace(measure, value);
        add(withUnit(measure), text, masked || Number.isNaN(value) ? '' : exact(value));
        if (measure === measureNow()) spoken += `, ${withUnit(measure)} ${text}`;
      }
    }
    list.replaceChildren(...parts);
    if (!peek) $('spoken').textContent = spoken;
  };

  const drawOutcomes = () => {
    $('outcome-part').hidden = data.outcomes.length === 0;
    const head = make('tr');
    const unit = data.outcome_unit ? ` (${named(data.outcome_unit)})` : '';
    for (const [text, number] of [['', false], [say('base') + unit, true], [say('edited') + unit, true], [say('change'), true]])
      head.append(make('th', number ? 'number' : '', text));
    const body = make('tbody');
    for (const outcome of data.outcomes) {
      const line = make('tr'), token = make('td', 'token' + (outcome.special ? ' special' : ''), outcome.text);
      const base = outcome.base === null ? NaN : outcome.base, edited = outcome.edited === null ? NaN : outcome.edited;
      token.dir = 'auto';
      line.append(token);
      for (const [value, className, sign] of [[base, '', ''], [edited, ' edited', ''], [edited - base, '', edited > base ? '+' : '']]) {
        const number = make('td', 'number' + className, sign + three(value));
        number.title = String(value);
        line.append(number);
      }
      body.append(line);
    }
    const table = make('thead');
    table.append(head);
    $('outcomes').replaceChildren(table, body);
  };

  const drawAttributions = () => {
    $('attribution-part').hidden = data.attributions.length === 0;
    const parts = [];
    for (const attribution of data.attributions) {
      const scores = attribution.values.map(text => text === null ? null : new Float32Array(bytesOf(text).buffer));
      const all = scores.flatMap(text => text === null ? [] : Array.from(text));
      const common = scaleOf({kind: 'effect'}, Math.max(0, ...all.filter(Number.isFinite).map(Math.abs)));
      parts.push(make('h3', '', withUnit(attribution)));
      data.texts.forEach((text, index) => {
        if (scores[index] === null) return;
        parts.push(make('p', 'side', named(text.name)));
        const line = make('div', 'tokens');
        text.tokens.forEach((token, i) => {
          const value = scores[index][i], colour = Number.isNaN(value) ? '' : colourOf(common, value);
          const item = make('span', 'fixed ' + (token.blank_before || token.special ? 'apart' : ''), shown(token));
          item.dir = 'auto';
          item.style.backgroundColor = colour;
          item.style.color = colour ? inkOn(colour) : '';
          item.title = exact(value);
          item.append(make('small', '', three(value)));
          line.append(item);
        });
        parts.push(line);
      });
      const facts = [`${say('sum')} ${three(all.reduce((sum, value) => sum + value, 0))}`, `${say('target')} ${three(attribution.target)}`];
      if (attribution.steps)
        facts.push(`${say('baseline')} (${attribution.baseline_name}) ${three(attribution.baseline)}`,
          `${say('completeness')} ${three(attribution.completeness_error)}`, `${attribution.steps} ${say('steps')}`);
      parts.push(make('p', 'facts', facts.join(' · ')));
    }
    $('attributions').replaceChildren(...parts);
  };

  // Scrolls a list so that what is chosen is in view, and nothing else.
  const reveal = box => {
    const item = box.querySelector('.chosen');
    if (!item) return;
    const inside = item.getBoundingClientRect(), around = box.getBoundingClientRect();
    if (inside.top < around.top) box.scrollTop -= around.top - inside.top + 24;
    else if (inside.bottom > around.bottom) box.scrollTop += inside.bottom - around.bottom + 24;
  };

  // What follows the pointer, what follows the selection, and everything.
  const drawPeek = () => {
    colourTokens();
    drawCrossHair();
    drawLines();
    drawRow();
    drawCell();
    if (peek) return;
    for (const box of [$('key-tokens'), $('query-tokens'), $('line-queries').closest('.scroll'), $('row').parentElement]) reveal(box);
  };
  const drawSelection = () => {
    const attention = attentionNow();
    values = matrixOf(attention, measureNow(), chosen.layer, chosen.head);
    scale = scaleOf(measureNow(), largestIn(attention, values));
    drawMenus();
    drawWall();
    drawLegend();
    drawMatrix();
    drawPeek();
  };
  const drawAll = () => {
    document.documentElement.dataset.theme = theme;
    drawWords();
    drawTokens();
    drawAttributions();
    drawOutcomes();
    drawSelection();
  };

  let waiting = false;
  const look = what => {
    peek = what;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      drawPeek();
    });
  };
  // Keeps every index inside what there is.
  const settle = () => {
    chosen.attention = clamp(chosen.attention, 0, data.attentions.length - 1);
    const attention = attentionNow();
    chosen.layer = clamp(chosen.layer, 0, attention.layers.length - 1);
    chosen.head = clamp(chosen.head, 0, attention.heads.length - 1);
    chosen.measure = clamp(chosen.measure, 0, attention.measures.length - 1);
    chosen.query = clamp(chosen.query, 0, queriesOf(attention).length - 1);
    chosen.key = clamp(chosen.key, -1, keysOf(attention).length - 1);
  };
  const fields = ['attention', 'layer', 'head', 'measure', 'query', 'key'];
  const remember = () => history.replaceState(null, '', '#' + fields.map(field => chosen[field]).join('.'));
  const recall = () => {
    const parts = location.hash.slice(1).split('.').map(Number);
    if (parts.length === fields.length && parts.every(Number.isInteger)) fields.forEach((field, i) => chosen[field] = parts[i]);
    settle();
  };
  const choose = change => {
    const before = {...chosen};
    Object.assign(chosen, change);
    peek = null;
    settle();
    remember();
    if (chosen.attention !== before.attention) drawAll();
    else if (['layer', 'head', 'measure'].some(field => chosen[field] !== before[field])) drawSelection();
    else drawPeek();
  };

  // ---- Hands ----
  for (const field of ['attention', 'layer', 'head', 'measure'])
    $(field).addEventListener('change', event => choose({[field]: +event.target.value, ...(field === 'attention' ? {key: -1} : {})}));
  $('metric').addEventListener('change', drawWall);
  $('logarithmic').addEventListener('change', event => {
    logarithmic = event.target.checked;
    drawSelection();
  });
  $('language').addEventListener('click', () => {
    language = language === 'zh' ? 'en' : 'zh';
    drawAll();
  });
  $('theme').addEventListener('click', () => {
    theme = theme === 'dark' ? 'light' : 'dark';
    drawAll();
  });
  const toggleHelp = () => {
    $('keys-help').hidden = !$('keys-help').hidden;
    $('help').setAttribute('aria-expanded', !$('keys-help').hidden);
  };
  $('help').addEventListener('click', toggleHelp);
  const cellAt = event => {
    const box = $('cells').getBoundingClientRect(), {left, top, cell, rows, columns} = geometry;
    const key = Math.floor((event.clientX - box.left - left) / cell), query = Math.floor((event.clientY - box.top - top) / cell);
    return query >= 0 && query < rows && key < columns ? {query, key: Math.max(-1, key)} : null;
  };
  $('matrix').addEventListener('pointermove', event => event.pointerType === 'mouse' && look(cellAt(event)));
  $('matrix').addEventListener('pointerleave', () => look(null));
  $('matrix').addEventListener('click', event => {
    const at = cellAt(event);
    if (at) choose(at);
  });
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT)$/.test(event.target.tagName)) return;
    const moves = {
      ArrowLeft: {key: Math.max(0, chosen.key - 1)}, ArrowRight: {key: chosen.key + 1}, ArrowUp: {query: chosen.query - 1},
      ArrowDown: {query: chosen.query + 1}, '[': {head: chosen.head - 1}, ']': {head: chosen.head + 1}, '{': {layer: chosen.layer - 1},
      '}': {layer: chosen.layer + 1}, Escape: {key: -1},
    };
    if (event.key === '?') toggleHelp();
    else if (moves[event.key]) choose(moves[event.key]);
    else return;
    event.preventDefault();
  });
  let settling = 0;
  addEventListener('resize', () => {
    clearTimeout(settling);
    settling = setTimeout(drawSelection, 100);
  });
  addEventListener('hashchange', () => {
    recall();
    drawAll();
  });

  // A page opens on the edge whose cut moves the target most; without a target on the cross-attention's last layer but
  // one, whose heads align best (Garg et al. 2019), or the last layer there is.
  const begin = () => {
    let most = 0;
    data.attentions.forEach((attention, a) => {
      const cells = queriesOf(attention).length * keysOf(attention).length;
      for (const measure of attention.measures.filter(one => one.kind === 'effect')) {
        const values = floatsOf(measure), largest = largestIn(attention, values);
        if (!(largest > most)) continue;
        most = largest;
        const at = values.findIndex(value => Math.abs(value) === largest), head = Math.floor(at / cells), cell = at % cells;
        Object.assign(chosen, {attention: a, layer: Math.floor(head / attention.heads.length), head: head % attention.heads.length,
                               query: Math.floor(cell / keysOf(attention).length), key: cell % keysOf(attention).length});
      }
    });
    if (most > 0) return;
    const cross = data.attentions.findIndex(attention => attention.name === 'cross');
    chosen.attention = cross < 0 ? data.attentions.filter(attention => !methodOf(attention.name)).length - 1 : cross;
    const layers = attentionNow().layers.length;
    chosen.layer = cross >= 0 && layers > 1 ? layers - 2 : layers - 1;
    chosen.query = queriesOf(attentionNow()).findIndex(token => !token.special);
  };

  begin();
  recall();
  drawAll();
})();
