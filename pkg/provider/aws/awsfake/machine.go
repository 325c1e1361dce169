package awsfake

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// state is what EC2 says of a machine.
type state struct {
	code int
	name string
}

// The states of a machine. Nothing is shown of one that is forgotten.
func pending() state      { return state{0, "pending"} }
func running() state      { return state{16, "running"} }
func shuttingDown() state { return state{32, "shutting-down"} }
func terminated() state   { return state{48, "terminated"} }
func stopping() state     { return state{64, "stopping"} }
func stopped() state      { return state{80, "stopped"} }
func forgotten() state    { return state{-1, "forgotten"} }

// reason is why a machine is in its state.
type reason struct{ code, message string }

// moment is what a machine is from some time on.
type moment struct {
	at    time.Time
	state state
	why   reason
}

// machine is one instance. What of it changes is in its life alone.
type machine struct {
	launch   launch
	id       string
	order    int // how many were launched before it
	at       time.Time
	address  netip.Addr
	cards    []*card      // that are in it, or were
	lost     map[int]bool // device indices that take no interface any more
	hangs    bool         // it lets go of no interface
	notice   time.Time    // when it is to end, as it was told; zero: it was not
	digest   string       // of the call that made it
	life     []moment
	reserved string // the reservation it came with
}

// as returns what the machine was at a time; ok is false before it was made, and once
// it is forgotten.
func (m *machine) as(t time.Time) (moment, bool) {
	for _, one := range slices.Backward(m.life) {
		if !one.at.After(t) {
			return one, one.state != forgotten()
		}
	}
	return moment{}, false
}

// is reports whether the machine is in one of the states at a time.
func (m *machine) is(t time.Time, states ...state) bool {
	now, ok := m.as(t)
	return ok && slices.Contains(states, now.state)
}

// write replaces what is to come of a machine.
func (m *machine) write(now time.Time, next ...moment) {
	for len(m.life) > 0 && m.life[len(m.life)-1].at.After(now) {
		m.life = m.life[:len(m.life)-1]
	}
	m.life = append(m.life, next...)
}

// terminate ends a machine.
func (c *Cloud) terminate(m *machine, now time.Time, why reason) {
	if !m.is(now, pending(), running(), stopping(), stopped()) {
		return
	}
	end := now.Add(c.cfg.Shutdown)
	m.write(now, moment{now, shuttingDown(), why}, moment{end, terminated(), why}, moment{end.Add(c.cfg.Remember), forgotten(), reason{}})
}

// stop halts a machine, which stays there.
func (c *Cloud) stop(m *machine, now time.Time, why reason) {
	if m.is(now, pending(), running()) {
		m.write(now, moment{now, stopping(), why}, moment{now.Add(c.cfg.Shutdown), stopped(), why})
	}
}

// add puts a new machine into the cloud. The caller holds the lock, and has checked all.
func (c *Cloud) add(l launch, addresses []netip.Addr, digest string) *machine {
	now := c.cfg.Now()
	m := &machine{
		launch: l, id: "i-" + hexID(c.random), reserved: "r-" + hexID(c.random), order: len(c.machines), at: now, address: addresses[0],
		digest: digest,
	}
	for n, nic := range l.nics {
		k := addCard(c, card{subnet: nic.subnet, groups: nic.groups, tags: l.nicTags}, holding{at: now, ipv4: addresses[n : n+1]})
		plugIn(c, k, m, nic.index, 0, nic.ends)
	}
	m.write(now, moment{now, pending(), reason{"pending", "pending"}}, moment{now.Add(c.cfg.Boot), running(), reason{}})
	if len(c.doomed) > 0 {
		why, end := c.doomed[0], now.Add(c.cfg.Boot)
		c.doomed = c.doomed[1:]
		m.life = []moment{m.life[0], {end, terminated(), why}, {end.Add(c.cfg.Remember), forgotten(), reason{}}}
	}
	c.machines = append(c.machines, m)
	c.byID[m.id] = m
	if l.token != "" {
		c.byToken[l.token] = m
	}
	return m
}

// takesRoom reports whether the machine takes room in the cloud.
func (m *machine) takesRoom(t time.Time) bool {
	return m.is(t, pending(), running(), shuttingDown(), stopping(), stopped())
}

// here returns the machines that take room in the cloud.
func (c *Cloud) here(now time.Time) []*machine {
	return slices.DeleteFunc(slices.Clone(c.machines), func(m *machine) bool { return !m.takesRoom(now) })
}

// shown draws of which moment a read shows one machine.
func (c *Cloud) shown(now time.Time) time.Time {
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

// Machine is one instance as it is now, for tests.
type Machine struct {
	ID       string
	State    string
	Subnet   string
	Type     string
	Token    string
	Tags     map[string]string
	UserData []byte
	Params   map[string]string // as they came
}

// Machines returns all that are not forgotten, in the order of their launch.
func (c *Cloud) Machines() []Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Machine
	for _, m := range c.machines {
		now, ok := m.as(c.cfg.Now())
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
