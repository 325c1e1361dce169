package awstest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

type stateItem struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

func (s state) item() stateItem { return stateItem{s.code, s.name} }

type tagItem struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type groupItem struct {
	ID string `xml:"groupId"`
}

type reasonItem struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type instanceItem struct {
	ID         string          `xml:"instanceId"`
	Image      string          `xml:"imageId"`
	State      stateItem       `xml:"instanceState"`
	PrivateDNS string          `xml:"privateDnsName"`
	KeyName    string          `xml:"keyName,omitempty"`
	Index      int             `xml:"amiLaunchIndex"`
	Type       string          `xml:"instanceType"`
	LaunchTime string          `xml:"launchTime"`
	Zone       string          `xml:"placement>availabilityZone"`
	Subnet     string          `xml:"subnetId,omitempty"`
	VPC        string          `xml:"vpcId,omitempty"`
	Private    string          `xml:"privateIpAddress,omitempty"`
	Public     string          `xml:"ipAddress,omitempty"`
	Why        *reasonItem     `xml:"stateReason"`
	Arch       string          `xml:"architecture"`
	Lifecycle  string          `xml:"instanceLifecycle,omitempty"`
	Token      string          `xml:"clientToken"`
	Tags       []tagItem       `xml:"tagSet>item"`
	Groups     []groupItem     `xml:"groupSet>item"`
	IPv6       string          `xml:"ipv6Address,omitempty"`
	Interfaces []interfaceItem `xml:"networkInterfaceSet>item"`
	HTTPTokens string          `xml:"metadataOptions>httpTokens"`
}

type reservation struct {
	ID        string         `xml:"reservationId"`
	Owner     string         `xml:"ownerId"`
	Instances []instanceItem `xml:"instancesSet>item"`
}

// reservationOf returns a machine with its current interfaces.
func reservationOf(c *Cloud, m *machine, what transition) reservation {
	return reservation{ID: m.reserved, Owner: c.cfg.Account, Instances: []instanceItem{describeMachine(c, m, what, c.cfg.Now())}}
}

func describeMachine(c *Cloud, m *machine, what transition, at time.Time) instanceItem {
	s, _ := c.cfg.subnet(m.launch.subnet)
	i := instanceItem{
		ID: m.id, Image: m.launch.image.ID, State: what.state.item(), KeyName: m.launch.keyName, Type: m.launch.kind,
		LaunchTime: m.at.UTC().Format("2006-01-02T15:04:05.000Z"), Zone: s.Zone, Subnet: m.launch.subnet, VPC: s.VPC,
		Private: m.address.String(), Arch: m.launch.image.Arch, Token: m.launch.token, HTTPTokens: m.launch.tokens,
	}
	for n, k := range m.attached(at) {
		item := describeInterface(c, k, at)
		i.Interfaces = append(i.Interfaces, item)
		if n == 0 {
			i.Groups, i.IPv6 = item.Groups, item.IPv6
		}
	}
	i.PrivateDNS = fmt.Sprintf("ip-%s.%s.compute.internal", strings.ReplaceAll(i.Private, ".", "-"), c.cfg.Region)
	if what.why.code != "" {
		i.Why = &reasonItem{what.why.code, what.why.message}
	}
	if m.launch.spot {
		i.Lifecycle = "spot"
	}
	if m.launch.publicIP {
		i.Public = "203.0.113." + fmt.Sprint(m.order%250+1)
	}
	if what.state == terminated() { // its interface is deleted
		i.Private, i.PrivateDNS, i.Subnet, i.VPC, i.Public = "", "", "", "", ""
	}
	for _, key := range slices.Sorted(maps.Keys(m.launch.tags)) {
		i.Tags = append(i.Tags, tagItem{key, m.launch.tags[key]})
	}
	return i
}

// properties are the values that filters match.
func (i instanceItem) properties() map[string][]string {
	p := map[string][]string{
		"instance-id": {i.ID}, "instance-state-name": {i.State.Name}, "client-token": {i.Token}, "image-id": {i.Image},
		"instance-type": {i.Type}, "subnet-id": {i.Subnet}, "vpc-id": {i.VPC}, "private-ip-address": {i.Private},
	}
	for _, tag := range i.Tags {
		p["tag:"+tag.Key] = []string{tag.Value}
		p["tag-key"] = append(p["tag-key"], tag.Key)
	}
	return p
}

type instancesReply struct {
	XMLName struct{} `xml:"DescribeInstancesResponse"`
	header
	Items     []reservation `xml:"reservationSet>item"`
	NextToken string        `xml:"nextToken,omitempty"`
}

// describeInstances shows each machine possibly stale. A page begins with the machine at which the
// one before ended, so that changes in between hide no other machine.
func (c *Cloud) describeInstances(p *params) (any, error) {
	q, err := readQuery(p, "InstanceId", limits{5, 1000}, "instance-id", "instance-state-name", "client-token", "image-id",
		"instance-type", "subnet-id", "vpc-id", "private-ip-address", "tag-key", "tag:")
	if err != nil {
		return nil, err
	}
	if err := wellFormed(q.ids); err != nil {
		return nil, err
	}
	reply, now, missing := &instancesReply{}, c.cfg.Now(), slices.Clone(q.ids)
	for _, m := range c.machines {
		at := c.readTime(now)
		what, ok := m.stateAt(at)
		if !ok || m.order < q.skip {
			continue
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == m.id })
		item := describeMachine(c, m, what, at)
		if !q.matches(m.id, item.properties()) {
			continue
		}
		if q.page > 0 && len(reply.Items) == q.page {
			reply.NextToken = token(m.order)
			break
		}
		reply.Items = append(reply.Items, reservation{ID: m.reserved, Owner: c.cfg.Account, Instances: []instanceItem{item}})
	}
	if len(missing) > 0 {
		return nil, instancesNotFound(missing)
	}
	return reply, nil
}

var instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

func wellFormed(ids []string) error {
	for _, id := range ids {
		if !instanceID.MatchString(id) {
			return bad("InvalidInstanceID.Malformed", "Invalid id: \"%.80s\"", id)
		}
	}
	return nil
}

// instancesNotFound is the error of a batch with unknown ids.
func instancesNotFound(ids []string) error {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 1 {
		return bad("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", ids[0])
	}
	return bad("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(ids, ", "))
}

type changeItem struct {
	ID       string    `xml:"instanceId"`
	Current  stateItem `xml:"currentState"`
	Previous stateItem `xml:"previousState"`
}

type terminateReply struct {
	XMLName struct{} `xml:"TerminateInstancesResponse"`
	header
	Items []changeItem `xml:"instancesSet>item"`
}

// terminateInstances terminates all of a batch, or none.
func (c *Cloud) terminateInstances(p *params) (any, error) {
	ids, err := p.list("InstanceId")
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, bad("MissingParameter", "The request must contain the parameter InstanceId")
	}
	if err := wellFormed(ids); err != nil {
		return nil, err
	}
	now := c.cfg.Now()
	if err := checkTerminate(c.byID, ids, now); err != nil {
		return nil, err
	}
	reply := &terminateReply{}
	for _, id := range ids {
		m := c.byID[id]
		before, _ := m.stateAt(now)
		c.terminate(m, now, reason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"})
		after, _ := m.stateAt(now)
		if before.state != terminated() {
			after.state = shuttingDown() // as in every reply
		}
		reply.Items = append(reply.Items, changeItem{id, after.state.item(), before.state.item()})
	}
	return reply, nil
}

// checkTerminate refuses a batch with an unknown or a protected machine.
func checkTerminate(byID map[string]*machine, ids []string, now time.Time) error {
	var missing []string
	for _, id := range ids {
		m, ok := byID[id]
		if ok {
			_, ok = m.stateAt(now)
		}
		if !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return instancesNotFound(missing)
	}
	for _, id := range ids {
		if byID[id].launch.protected {
			return bad("OperationNotPermitted",
				"The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", id)
		}
	}
	return nil
}
