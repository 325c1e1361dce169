package awsfake

import (
	"encoding/xml"
	"slices"
	"strconv"
	"time"
)

// TargetGroup is where a load balancer sends traffic to: machines, by their ids.
type TargetGroup struct {
	ARN  string
	Port int // of a target that is registered without one
	VPC  string
	Tags map[string]string
}

// target is one machine and port in a group. What of it changes is in its life alone.
type target struct {
	id   string
	port int
	life []registration
}

// registration is what a target is from some time on.
type registration struct {
	at    time.Time
	state targetState
}

type targetState string

const (
	targetHealthy  targetState = "healthy"
	targetDraining targetState = "draining"
	targetUnused   targetState = "unused" // not, or no longer, in the group
)

func (t *target) as(at time.Time) targetState {
	for _, one := range slices.Backward(t.life) {
		if !one.at.After(at) {
			return one.state
		}
	}
	return targetUnused
}

func (t *target) write(now time.Time, next ...registration) {
	for len(t.life) > 0 && t.life[len(t.life)-1].at.After(now) {
		t.life = t.life[:len(t.life)-1]
	}
	t.life = append(t.life, next...)
}

// Balancing is Elastic Load Balancing of a Cloud, and as safe for concurrent use.
type Balancing struct {
	cloud   *Cloud
	groups  []TargetGroup
	targets map[string][]*target // by the ARN of their group
}

// Add makes a target group without targets.
func (b *Balancing) Add(g TargetGroup) {
	b.cloud.mu.Lock()
	defer b.cloud.mu.Unlock()
	b.groups = append(slices.Clip(b.groups), g)
	b.targets[g.ARN] = nil
}

func balancing() map[string]action {
	about := []string{"TargetGroupArn", "Targets.member.N.Id", "Targets.member.N.Port"}
	return map[string]action{
		"RegisterTargets":      {known(about), balance((*Balancing).registerTargets)},
		"DeregisterTargets":    {known(about), balance((*Balancing).deregisterTargets)},
		"DescribeTargetHealth": {known(about), balance((*Balancing).describeTargetHealth)},
	}
}

func balance(do func(*Balancing, *params) (any, error)) func(*Cloud, *params) (any, error) {
	return func(c *Cloud, p *params) (any, error) { return do(c.Balancing, p) }
}

func elbReply(action string) *queryReply { return done(action, versionELB, "elasticloadbalancing") }

// targetGroup returns the group that a call is about.
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

// description is a target as a call has it.
type description struct {
	id   string
	port int // 0: the group's
}

// readTargets reads which targets a call is about.
func readTargets(p *params) (out []description, err error) {
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
		out = append(out, description{p.get(at + ".Id"), port})
	}
	return out, nil
}

// about reads a call that changes something: it names at least one target.
func (b *Balancing) about(p *params) (TargetGroup, []description, error) {
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

// registerTargets adds all that are named, or none.
func (b *Balancing) registerTargets(p *params) (any, error) {
	group, described, err := b.about(p)
	if err != nil {
		return nil, err
	}
	now, added := b.cloud.cfg.Now(), 0
	for _, d := range described {
		if err := b.mayServe(group, d.id, now); err != nil {
			return nil, err
		}
		if t := b.target(group, d); t == nil || t.as(now) != targetHealthy {
			added++
		}
	}
	serving := 0
	for _, t := range b.targets[group.ARN] {
		if t.as(now) == targetHealthy {
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
		if t.as(now) != targetHealthy {
			t.write(now, registration{now, targetHealthy})
		}
	}
	return elbReply("RegisterTargets"), nil
}

// target returns what a group has by a description; nil: it never had it.
func (b *Balancing) target(group TargetGroup, d description) *target {
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

// mayServe refuses what can't be a target.
func (b *Balancing) mayServe(group TargetGroup, id string, now time.Time) error {
	m, ok := b.cloud.byID[id]
	if ok {
		_, ok = m.as(now)
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

// deregisterTargets takes out all that are named. What is not there was taken out.
func (b *Balancing) deregisterTargets(p *params) (any, error) {
	group, described, err := b.about(p)
	if err != nil {
		return nil, err
	}
	now := b.cloud.cfg.Now()
	for _, d := range described {
		if !instanceID.MatchString(d.id) {
			return nil, bad("InvalidTarget", "The following targets are not valid instances: '%.80s'", d.id)
		}
		for _, t := range b.targets[group.ARN] {
			if t.id != d.id || d.port != 0 && t.port != d.port || t.as(now) != targetHealthy {
				continue
			}
			t.write(now, registration{now, targetDraining}, registration{now.Add(b.cloud.cfg.Draining), targetUnused})
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

// describeTargetHealth shows the targets of a group as they were a while ago, or, of
// those that are named, also that they are none.
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
	return replyOf("DescribeTargetHealth", versionELB, "elasticloadbalancing", reply), nil
}

// health is how a target does, as a read shows it.
func (b *Balancing) health(t *target, now time.Time) healthItem {
	item := healthItem{ID: t.id, Port: t.port}
	m, known := b.cloud.byID[t.id]
	if known {
		_, known = m.as(now)
	}
	switch state := t.as(b.cloud.shown(now)); {
	case state == targetUnused || !known: // what is terminated and forgotten is dropped
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
