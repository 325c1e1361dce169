package awstest

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// state is a machine's state as EC2 reports it.
type state struct {
	code int
	name string
}

// The states of a machine. A forgotten one is no longer listed.
func pending() state      { return state{0, "pending"} }
func running() state      { return state{16, "running"} }
func shuttingDown() state { return state{32, "shutting-down"} }
func terminated() state   { return state{48, "terminated"} }
func stopping() state     { return state{64, "stopping"} }
func stopped() state      { return state{80, "stopped"} }
func forgotten() state    { return state{-1, "forgotten"} }

// reason is why a machine is in its state.
type reason struct{ code, message string }

// transition is a machine's state from a time on.
type transition struct {
	at    time.Time
	state state
	why   reason
}

// machine is one instance. Its timeline is all that changes.
type machine struct {
	launch      launch
	id          string
	order       int // number of launches before it
	at          time.Time
	address     netip.Addr
	interfaces  []*networkInterface // attached to it now or before
	lostIndexes map[int]bool        // device indexes that are unusable
	hangs       bool                // it releases no interface
	notice      time.Time           // when its termination was announced for; zero: it was not
	digest      string              // of the call that launched it
	timeline    []transition
	reserved    string // the reservation of its launch
}

// stateAt returns the machine's state at a time; ok is false before its launch, and once it is
// forgotten.
func (m *machine) stateAt(t time.Time) (transition, bool) {
	for _, one := range slices.Backward(m.timeline) {
		if !one.at.After(t) {
			return one, one.state != forgotten()
		}
	}
	return transition{}, false
}

// is reports whether the machine is in one of the states at a time.
func (m *machine) is(t time.Time, states ...state) bool {
	now, ok := m.stateAt(t)
	return ok && slices.Contains(states, now.state)
}

// schedule replaces the future transitions of a machine.
func (m *machine) schedule(now time.Time, next ...transition) {
	for len(m.timeline) > 0 && m.timeline[len(m.timeline)-1].at.After(now) {
		m.timeline = m.timeline[:len(m.timeline)-1]
	}
	m.timeline = append(m.timeline, next...)
}

// terminate ends a machine.
func (c *Cloud) terminate(m *machine, now time.Time, why reason) {
	if !m.is(now, pending(), running(), stopping(), stopped()) {
		return
	}
	end := now.Add(c.cfg.Shutdown)
	m.schedule(now, transition{now, shuttingDown(), why}, transition{end, terminated(), why},
		transition{end.Add(c.cfg.Remember), forgotten(), reason{}})
}

// stop stops a machine without terminating it.
func (c *Cloud) stop(m *machine, now time.Time, why reason) {
	if m.is(now, pending(), running()) {
		m.schedule(now, transition{now, stopping(), why}, transition{now.Add(c.cfg.Shutdown), stopped(), why})
	}
}

// add adds a new machine. The caller holds the lock, and has checked the launch.
func (c *Cloud) add(l launch, addresses []netip.Addr, digest string) *machine {
	now := c.cfg.Now()
	m := &machine{
		launch: l, id: "i-" + hexID(c.random), reserved: "r-" + hexID(c.random), order: len(c.machines), at: now, address: addresses[0],
		digest: digest,
	}
	for n, nic := range l.nics {
		own := addressSet{at: now, ipv4: addresses[n : n+1]}
		k := addInterface(c, networkInterface{subnet: nic.subnet, groups: nic.groups, tags: l.nicTags}, own)
		attach(c, k, m, nic.index, 0, nic.deleteOnTermination)
	}
	m.schedule(now, transition{now, pending(), reason{"pending", "pending"}}, transition{now.Add(c.cfg.Boot), running(), reason{}})
	if len(c.failedBoots) > 0 {
		why, end := c.failedBoots[0], now.Add(c.cfg.Boot)
		c.failedBoots = c.failedBoots[1:]
		m.timeline = []transition{m.timeline[0], {end, terminated(), why}, {end.Add(c.cfg.Remember), forgotten(), reason{}}}
	}
	c.machines = append(c.machines, m)
	c.byID[m.id] = m
	if l.token != "" {
		c.byToken[l.token] = m
	}
	return m
}

// occupiesCapacity reports whether the machine counts against the cloud's capacity.
func (m *machine) occupiesCapacity(t time.Time) bool {
	return m.is(t, pending(), running(), shuttingDown(), stopping(), stopped())
}

// occupying returns the machines that count against the cloud's capacity.
func (c *Cloud) occupying(now time.Time) []*machine {
	return slices.DeleteFunc(slices.Clone(c.machines), func(m *machine) bool { return !m.occupiesCapacity(now) })
}

// readTime draws the time as of which a read shows one machine.
func (c *Cloud) readTime(now time.Time) time.Time {
	if c.cfg.Lag <= 0 {
		return now
	}
	return now.Add(-time.Duration(c.random.Int64N(int64(c.cfg.Lag) + 1)))
}

func hexID(r *rand.Rand) string {
	const digits = "0123456789abcdef"
	id := make([]byte, 17)
	for n := range id {
		id[n] = digits[r.IntN(len(digits))]
	}
	return string(id)
}

// Machine is the present state of an instance, for tests.
type Machine struct {
	ID       string
	State    string
	Subnet   string
	Type     string
	Token    string
	Tags     map[string]string
	UserData []byte
	Params   map[string]string // of its launch
}

// Machines returns all machines but forgotten ones, in the order of their launch.
func (c *Cloud) Machines() []Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Machine
	for _, m := range c.machines {
		now, ok := m.stateAt(c.cfg.Now())
		if !ok {
			continue
		}
		out = append(out, Machine{
			ID: m.id, State: now.state.name, Subnet: m.launch.subnet, Type: m.launch.kind, Token: m.launch.token,
			Tags: maps.Clone(m.launch.tags), UserData: slices.Clone(m.launch.userdata), Params: maps.Clone(m.launch.params),
		})
	}
	return out
}
