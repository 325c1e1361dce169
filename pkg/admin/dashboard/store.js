// What is known of the shards, from the events of the stream.
//
// After a reset the state comes again. What was known stays until the shard has sent the whole of its
// new state, so that a restart of the API does not empty the page.

const kept = 200; // events of each shard
const samples = 120; // of a group

const key = (shard, id) => `${shard}/${id}`;

export class Store {
  groups = new Map();
  instances = new Map();
  problems = new Map();
  happened = new Map(); // by shard: newest last
  watched = new Map(); // by shard: {groups, instances, events}, each {lost, error, at} or missing
  leads = new Map(); // by shard: which server leads it, as asked last
  changed = new Set(); // which of the parts have changed since the page was drawn
  generation = 0;

  see({ kind, data }) {
    const handlers = {
      group: () => this.group(data.shard, data.group),
      groupGone: () => this.drop('groups', key(data.shard, data.key)),
      instance: () => this.instance(data.shard, data.instance),
      instanceGone: () => this.drop('instances', key(data.shard, data.key)),
      problem: () => this.problem(data.shard, data.problem),
      event: () => this.event(data.shard, data.event),
      snapshot: () => this.snapshot(data.shard, data.of, data.resumed),
      lost: () => this.lost(data.shard, data.of, data.error),
      reset: () => this.reset(),
    };
    handlers[kind]?.();
  }

  group(shard, group) {
    const known = this.groups.get(key(shard, group.key));
    const history = known?.history || [];
    this.groups.set(key(shard, group.key), { ...group, shard, history, generation: this.generation });
    this.sample(this.groups.get(key(shard, group.key)));
    this.changed.add('groups').add('shards');
  }

  // sample notes the sizes of a group now, for its history.
  sample(group, now = Date.now()) {
    group.history.push({ at: now, wanted: group.size, actual: group.actual_size });
    if (group.history.length > samples) group.history.shift();
  }

  sampleAll(now = Date.now()) {
    for (const group of this.groups.values()) this.sample(group, now);
    this.changed.add('groups');
  }

  instance(shard, instance) {
    if (instance.phase === 'INSTANCE_PHASE_DELETED') {
      this.drop('instances', key(shard, instance.id));
      return;
    }
    this.instances.set(key(shard, instance.id), { ...instance, shard, generation: this.generation });
    this.changed.add('instances');
  }

  problem(shard, problem) {
    const id = [shard, problem.reason, problem.group, problem.instance_id].join('\0');
    if (problem.over) this.problems.delete(id);
    else this.problems.set(id, { ...problem, shard });
    this.changed.add('shards');
  }

  event(shard, event) {
    const list = this.happened.get(shard) || [];
    if (list.some((known) => known.id === event.id)) return;
    list.push(event);
    if (list.length > kept) list.shift();
    this.happened.set(shard, list);
    this.changed.add('events').add('shards');
  }

  // lead notes which server leads a shard, unless a later one is known.
  lead(shard, is) {
    if (Number(is.epoch) < Number(this.leads.get(shard)?.epoch || 0)) return;
    this.leads.set(shard, is);
    this.changed.add('shards');
  }

  drop(part, id) {
    this[part].delete(id);
    this.changed.add(part);
  }

  snapshot(shard, of, resumed) {
    this.watch(shard)[of] = { at: Date.now() };
    this.changed.add('shards');
    if (resumed || !(this[of] instanceof Map) || of === 'happened') return;
    for (const [id, known] of this[of]) {
      if (known.shard === shard && known.generation !== this.generation) this.drop(of, id);
    }
  }

  lost(shard, of, error) {
    const before = this.watch(shard)[of];
    const why = error.replace(`shard ${shard}: `, ''); // the page names it itself
    this.watch(shard)[of] = { lost: true, error: why, at: before?.lost ? before.at : Date.now() };
    if (of === 'problems') {
      for (const [id, problem] of this.problems) if (problem.shard === shard) this.problems.delete(id);
    }
    this.changed.add('shards');
  }

  watch(shard) {
    if (!this.watched.has(shard)) this.watched.set(shard, {});
    return this.watched.get(shard);
  }

  reset() {
    this.generation++;
    this.watched.clear();
    this.problems.clear();
    this.changed.add('shards');
  }

  // epoch is that of the newest event of a shard; undefined if there is none.
  epoch(shard) {
    const epochs = (this.happened.get(shard) || []).map((event) => Number(event.id.split('.')[0]));
    return epochs.length ? Math.max(...epochs) : undefined;
  }

  takeover(shard) {
    return (this.happened.get(shard) || []).findLast((event) => event.kind === 'takeover');
  }
}
