// The conformance suite through the public API, for every host: `run.mjs` is Node's, Bun's and Deno's; React Native's and the web
// build bring their own `files`.

/** The bits of a float as eight digits. */
function hexOf(numbers) {
  const floats = Float32Array.from(numbers);
  return Array.from(new Uint32Array(floats.buffer), (bits) => bits.toString(16).padStart(8, "0")).join("");
}

function vectorOf(hex) {
  const bits = Uint32Array.from({ length: hex.length / 8 }, (_, i) => Number.parseInt(hex.slice(i * 8, i * 8 + 8), 16));
  return new Float32Array(bits.buffer);
}

async function collect(stream, most = Number.POSITIVE_INFINITY) {
  const events = [];
  while (events.length < most) {
    const { done, value } = await stream.next();
    if (done) break;
    events.push(value);
  }
  return { events };
}

/** One case: what it has made, by name. */
class Case {
  constructor(api, files) {
    this.api = api;
    this.files = files;
    this.made = new Map();
  }

  at(name) {
    if (!this.made.has(name)) throw new this.api.CactusError("handle", `nothing was made as ${name}`);
    return this.made.get(name);
  }

  keep(step, thing) {
    this.made.set(step.as, thing);
    return {};
  }

  /** Samples as bytes; of a part of them where the step says which. */
  async pcm(step) {
    const bytes = await this.files.read(step.pcm);
    return step.from === undefined ? bytes : bytes.slice(step.from * 2, step.to * 2);
  }

  async sound(step) {
    return step.pcm === undefined ? step.file : { pcm: await this.pcm(step) };
  }

  async run(step) {
    const { api } = this;
    const on = step.on === undefined ? undefined : this.at(step.on);
    const of = step.of === undefined ? undefined : this.at(step.of);
    switch (step.op) {
      case "versions":
        return { abi: api.abiVersion() };
      case "check_bundle":
        return { report: await api.checkBundle(step.path, { verify: step.verify }) };
      case "load":
        return this.keep(step, await api.Model.load(step.source, step.options ?? {}));
      case "load_embedder":
        return this.keep(step, await api.Embedder.load(step.source));
      case "load_transcriber":
        return this.keep(step, await api.Transcriber.load(step.source));
      case "info": {
        const info = await on.info();
        return { info: Object.fromEntries(step.fields.map((field) => [field, info[field]])) };
      }
      case "tokenize":
        return { tokens: Array.from(await on.tokenize(step.text, step.special)) };
      case "detokenize":
        return { text: await on.detokenize(step.tokens, step.special) };
      case "score":
        return { score: await on.score(step.tokens, step.first) };
      case "session":
        return this.keep(step, await on.session(step.defaults ?? {}));
      case "respond":
        return { answer: (await on.respond(step.request)).json };
      case "stream":
        return this.stream(step, on);
      case "start": {
        const stream = on.stream(step.request, { join: false });
        await stream.ready();
        return this.keep(step, stream);
      }
      case "read":
        return collect(of, step.count);
      case "collect":
        return collect(of);
      case "cancel":
        of.cancel();
        return {};
      case "close":
        await of.close();
        return {};
      case "messages":
        return { messages: await on.messages() };
      case "tools":
        return this.tools(step, on);
      case "structured":
        return { value: await on.respondAs(step.request, step.schema) };
      case "set_policy":
        await on.setPolicy(step.policy, step.options);
        return {};
      case "set_threads":
        await on.setThreads(step.threads, step.decode_threads);
        return {};
      case "memory_pressure":
        await api.memoryPressure();
        return {};
      case "embed":
        return { vectors: (await on.embed(step.texts, { normalize: step.normalize })).map(hexOf) };
      case "embed_image":
        return { vectors: [hexOf(await on.embedImage(step.path))] };
      case "index_open":
        return this.keep(step, await api.Index.open(step.folder, step.dimension));
      case "index_add": {
        const entry = (id, i) => ({ id, document: step.documents[i], metadata: step.metadatas?.[i], vector: vectorOf(step.vectors[i]) });
        await on.add(step.ids.map(entry));
        return {};
      }
      case "index_query": {
        const found = await on.query(step.vectors.map(vectorOf), step.options ?? {});
        return { found: found.map((hits) => hits.map(({ id, score }) => [id, hexOf([score])])) };
      }
      case "index_get": {
        const stored = await on.get(step.ids);
        return { documents: stored.map(({ document, metadata, vector }) => [document, metadata, hexOf(vector)]) };
      }
      case "index_delete":
        await on.delete(step.ids);
        return {};
      case "index_compact":
        await on.compact();
        return {};
      case "transcribe":
        return { result: await on.transcribe(await this.sound(step), step.options ?? {}) };
      case "detect_language":
        return { result: await on.detectLanguage(await this.sound(step), step.options ?? {}) };
      case "speech":
        return { result: await on.speech(await this.sound(step), step.options ?? {}) };
      case "live":
        return this.keep(step, await on.live(step.options ?? {}));
      case "push":
        return { result: await of.push(await this.pcm(step)) };
      case "finish":
        return { result: await of.finish() };
      default:
        return { absent: `the runner does not know the operation ${step.op}` };
    }
  }

  async stream(step, on) {
    const stream = on.stream(step.request, { join: false });
    await stream.ready();
    const events = [];
    let texts = 0;
    for (;;) {
      const { done, value } = await stream.next();
      if (done) break;
      events.push(value);
      if (value.event === "text" && ++texts === step.cancel_after) stream.cancel();
      if (value.event === "consent" && step.consent !== undefined) await stream.consent(step.consent);
    }
    await stream.close();
    return { events };
  }

  async tools(step, on) {
    const calls = [];
    const { tools, ...request } = step.request;
    const named = tools.map(({ function: { name, description, parameters } }) =>
      this.api.tool({
        name,
        description,
        parameters,
        run(args) {
          calls.push([name, args]);
          if (step.throws?.includes(name)) throw new Error(step.results[name]);
          return step.results[name];
        },
      }),
    );
    const confirm = (name) => !(step.refuse ?? []).includes(name);
    const answer = await on.respondWithTools(request, named, { rounds: step.most, confirm });
    return { answer: answer.json, calls };
  }

  async close() {
    // What was made last belongs to what was made before.
    for (const thing of [...this.made.values()].reverse()) await thing.close();
  }
}

/**
 * Runs all cases of a plan. `files` has `read(path)`, which gives bytes, and `write(line)`; where it has `absent(step)`, that says why a
 * step cannot be done.
 */
export async function runPlan(api, plan, files) {
  for (const one of plan.cases) {
    const results = [];
    const running = new Case(api, files);
    for (const step of one.steps) {
      try {
        const absent = files.absent?.(step);
        results.push(absent === undefined ? await running.run(step) : { absent });
      } catch (error) {
        const { kind, message } = error;
        results.push({ error: { kind: kind ?? error.name, message: kind === undefined ? error.stack : message } });
      }
    }
    await running.close();
    await files.write(JSON.stringify({ case: one.name, results }));
  }
  await files.write(JSON.stringify({ end: plan.cases.length }));
}
