package awstest

import (
	"encoding/xml"
	"slices"
	"strconv"
	"time"
)

// TargetGroup is a target group of a load balancer, whose targets are instances.
type TargetGroup struct {
	ARN  string
	Port int // the default of targets
	VPC  string
	Tags map[string]string
}

// target is a machine and port in a group. Its timeline is all that changes.
type target struct {
	id       string
	port     int
	timeline []targetTransition
}

// targetTransition is a target's state from a time on.
type targetTransition struct {
	at    time.Time
	state targetState
}

type targetState string

const (
	targetHealthy  targetState = "healthy"
	targetDraining targetState = "draining"
	targetUnused   targetState = "unused" // never, or no longer, registered
)

func (t *target) stateAt(at time.Time) targetState {
	for _, one := range slices.Backward(t.timeline) {
		if !one.at.After(at) {
			return one.state
		}
	}
	return targetUnused
}

func (t *target) schedule(now time.Time, next ...targetTransition) {
	for len(t.timeline) > 0 && t.timeline[len(t.timeline)-1].at.After(now) {
		t.timeline = t.timeline[:len(t.timeline)-1]
	}
	t.timeline = append(t.timeline, next...)
}

// Balancing is the Elastic Load Balancing of a Cloud. It is safe for concurrent use.
type Balancing struct {
	cloud   *Cloud
	groups  []TargetGroup
	targets map[string][]*target // by ARN of the group
}

// Add adds a target group without targets.
func (b *Balancing) Add(g TargetGroup) {
	b.cloud.mu.Lock()
	defer b.cloud.mu.Unlock()
	b.groups = append(slices.Clip(b.groups), g)
	b.targets[g.ARN] = nil
}

func balancingActions() map[string]action {
	about := []string{"TargetGroupArn", "Targets.member.N.Id", "Targets.member.N.Port"}
	return map[string]action{
		"RegisterTargets":      {parameterSet(about), onBalancing((*Balancing).registerTargets)},
		"DeregisterTargets":    {parameterSet(about), onBalancing((*Balancing).deregisterTargets)},
		"DescribeTargetHealth": {parameterSet(about), onBalancing((*Balancing).describeTargetHealth)},
	}
}

func onBalancing(do func(*Balancing, *params) (any, error)) func(*Cloud, *params) (any, error) {
	return func(c *Cloud, p *params) (any, error) { return do(c.Balancing, p) }
}

func elbReply(action string) *queryReply {
	return emptyReply(action, versionELB, "elasticloadbalancing")
}

// targetGroup returns the group that a call names.
func (b *Balancing) targetGroup(p *params) (TargetGroup, error) {
	arn := p.get("TargetGroupArn")
	if arn == "" {
		return TargetGroup{}, bad("ValidationError", "1 validation error detected: Value null at 'targetGroupArn' failed to satisfy constraint")
	}
	n := slices.IndexFunc(b.groups, func(g TargetGroup) bool { return g.ARN == arn })
	if n < 0 {
		return TargetGroup{}, bad("TargetGroupNotFound", "Target groups '%.200s' not found", arn)
	}
	return b.groups[n], nil
}

// targetRef is a target as a call names it.
type targetRef struct {
	id   string
	port int // 0: the group's
}

// readTargets reads the targets that a call names.
func readTargets(p *params) (out []targetRef, err error) {
	n, err := p.count("Targets.member")
	if err != nil {
		return nil, err
	}
	for i := range n {
		at := "Targets.member." + strconv.Itoa(i+1)
		port, given, err := p.number(at + ".Port")
		if err != nil || given && (port < 1 || port > 65535) {
			return nil, bad("ValidationError", "Port '%.20s' must be between 1 and 65535", p.get(at+".Port"))
		}
		if !p.has(at + ".Id") {
			return nil, bad("ValidationError", "Value null at '%s.id' failed to satisfy constraint: Member must not be null", at)
		}
		out = append(out, targetRef{p.get(at + ".Id"), port})
	}
	return out, nil
}

// readChange reads the group and the targets, at least one, of a call that changes registrations.
func (b *Balancing) readChange(p *params) (TargetGroup, []targetRef, error) {
	group, err := b.targetGroup(p)
	if err != nil {
		return group, nil, err
	}
	described, err := readTargets(p)
	if err == nil && len(described) == 0 {
		err = bad("ValidationError", "At least one target must be specified")
	}
	return group, described, err
}

// registerTargets registers all targets of a call, or none.
func (b *Balancing) registerTargets(p *params) (any, error) {
	group, described, err := b.readChange(p)
	if err != nil {
		return nil, err
	}
	now, added := b.cloud.cfg.Now(), 0
	for _, d := range described {
		if err := b.checkTarget(group, d.id, now); err != nil {
			return nil, err
		}
		if t := b.target(group, d); t == nil || t.stateAt(now) != targetHealthy {
			added++
		}
	}
	serving := 0
	for _, t := range b.targets[group.ARN] {
		if t.stateAt(now) == targetHealthy {
			serving++
		}
	}
	if limit := b.cloud.cfg.TargetLimit; limit > 0 && serving+added > limit {
		return nil, bad("TooManyTargets", "The maximum number of targets in target group '%s' has been reached", group.ARN)
	}
	for _, d := range described {
		t := b.target(group, d)
		if t == nil {
			t = &target{id: d.id, port: d.port}
			if d.port == 0 {
				t.port = group.Port
			}
			b.targets[group.ARN] = append(b.targets[group.ARN], t)
		}
		if t.stateAt(now) != targetHealthy {
			t.schedule(now, targetTransition{now, targetHealthy})
		}
	}
	return elbReply("RegisterTargets"), nil
}

// target returns the target that d names; nil: it was never registered.
func (b *Balancing) target(group TargetGroup, d targetRef) *target {
	if d.port == 0 {
		d.port = group.Port
	}
	for _, t := range b.targets[group.ARN] {
		if t.id == d.id && t.port == d.port {
			return t
		}
	}
	return nil
}

// checkTarget refuses a machine that can't be a target.
func (b *Balancing) checkTarget(group TargetGroup, id string, now time.Time) error {
	m, ok := b.cloud.byID[id]
	if ok {
		_, ok = m.stateAt(now)
	}
	if !ok {
		return bad("InvalidTarget", "The following targets are not valid instances: '%.80s'", id)
	}
	if s, _ := b.cloud.cfg.subnet(m.launch.subnet); s.VPC != group.VPC {
		return bad("InvalidTarget", "The following targets are not in the target group VPC '%s': '%s'", group.VPC, id)
	}
	if !m.is(now, running()) {
		return bad("InvalidTarget", "The following targets are not in a running state and cannot be registered: '%s'", id)
	}
	return nil
}

// deregisterTargets deregisters targets; those that are not registered are ignored.
func (b *Balancing) deregisterTargets(p *params) (any, error) {
	group, described, err := b.readChange(p)
	if err != nil {
		return nil, err
	}
	now := b.cloud.cfg.Now()
	for _, d := range described {
		if !instanceID.MatchString(d.id) {
			return nil, bad("InvalidTarget", "The following targets are not valid instances: '%.80s'", d.id)
		}
		for _, t := range b.targets[group.ARN] {
			if t.id != d.id || d.port != 0 && t.port != d.port || t.stateAt(now) != targetHealthy {
				continue
			}
			t.schedule(now, targetTransition{now, targetDraining}, targetTransition{now.Add(b.cloud.cfg.Draining), targetUnused})
		}
	}
	return elbReply("DeregisterTargets"), nil
}

type healthItem struct {
	ID     string `xml:"Target>Id"`
	Port   int    `xml:"Target>Port"`
	Check  string `xml:"HealthCheckPort,omitempty"`
	State  string `xml:"TargetHealth>State"`
	Reason string `xml:"TargetHealth>Reason,omitempty"`
}

type healthReply struct {
	XMLName xml.Name     `xml:"DescribeTargetHealthResult"`
	Items   []healthItem `xml:"TargetHealthDescriptions>member"`
}

// describeTargetHealth returns the group's targets, possibly stale; of those that the call names,
// also the unregistered ones.
func (b *Balancing) describeTargetHealth(p *params) (any, error) {
	group, err := b.targetGroup(p)
	if err != nil {
		return nil, err
	}
	described, err := readTargets(p)
	if err != nil {
		return nil, err
	}
	now := b.cloud.cfg.Now()
	reply := healthReply{}
	if len(described) == 0 {
		for _, t := range b.targets[group.ARN] {
			if item := b.health(t, now); item.Reason != "Target.NotRegistered" {
				reply.Items = append(reply.Items, item)
			}
		}
	}
	for _, d := range described {
		t := b.target(group, d)
		if t == nil {
			t = &target{id: d.id, port: d.port}
		}
		reply.Items = append(reply.Items, b.health(t, now))
	}
	return newReply("DescribeTargetHealth", versionELB, "elasticloadbalancing", reply), nil
}

// health returns a target's health as a read shows it.
func (b *Balancing) health(t *target, now time.Time) healthItem {
	item := healthItem{ID: t.id, Port: t.port}
	m, known := b.cloud.byID[t.id]
	if known {
		_, known = m.stateAt(now)
	}
	switch state := t.stateAt(b.cloud.readTime(now)); {
	case state == targetUnused || !known: // targets that are forgotten machines are dropped
		item.State, item.Reason = string(targetUnused), "Target.NotRegistered"
	case state == targetDraining:
		item.State, item.Reason = string(state), "Target.DeregistrationInProgress"
	case !m.is(now, running()):
		item.State, item.Reason = string(targetUnused), "Target.InvalidState"
	default:
		item.State, item.Check = string(targetHealthy), strconv.Itoa(t.port)
	}
	return item
}
