package awsfake

import (
	"regexp"
	"time"
)

var attachmentID = regexp.MustCompile(`^eni-attach-([0-9a-f]{8}|[0-9a-f]{17})$`)

type attachReply struct {
	XMLName struct{} `xml:"AttachNetworkInterfaceResponse"`
	header
	ID     string `xml:"attachmentId"`
	CardAt int    `xml:"networkCardIndex"`
}

// attachNetworkInterface plugs an interface that is free into a machine.
func attachNetworkInterface(c *Cloud, p *params) (any, error) {
	for _, name := range []string{"NetworkInterfaceId", "InstanceId", "DeviceIndex"} {
		if p.get(name) == "" {
			return nil, bad("MissingParameter", "The request must contain the parameter %s", name)
		}
	}
	index, _, err := p.number("DeviceIndex")
	if err != nil {
		return nil, err
	}
	if on, _, err := p.number("NetworkCardIndex"); err != nil || on != 0 {
		return nil, bad("InvalidParameterValue", "Value (%.80s) for parameter networkCardIndex is invalid. Expected 0.",
			p.get("NetworkCardIndex"))
	}
	k, err := findCard(c, p.get("NetworkInterfaceId"))
	if err != nil {
		return nil, err
	}
	m, err := attachable(c, p.get("InstanceId"))
	if err != nil {
		return nil, err
	}
	if err := mayPlugIn(c, k, m, index); err != nil {
		return nil, err
	}
	return &attachReply{ID: plugIn(c, k, m, index, c.cfg.Attach, false).id}, nil
}

// attachable returns a machine that takes interfaces now.
func attachable(c *Cloud, id string) (*machine, error) {
	if err := wellFormed([]string{id}); err != nil {
		return nil, err
	}
	m, ok := c.byID[id]
	if ok {
		_, ok = m.as(c.cfg.Now())
	}
	if !ok {
		return nil, notThere([]string{id})
	}
	if !m.is(c.cfg.Now(), running(), stopped()) {
		return nil, bad("IncorrectState", "Instance '%s' is not 'running' or 'stopped'.", id)
	}
	return m, nil
}

// mayPlugIn refuses an interface that is not free, and a machine that has no room for it.
func mayPlugIn(c *Cloud, k *card, m *machine, index int) error {
	now := c.cfg.Now()
	if at, _, _ := k.as(now); at.in != nil {
		return bad("InvalidNetworkInterface.InUse", "Interface: [%s] in use.", k.id)
	}
	own, _ := c.cfg.subnet(k.subnet)
	other, _ := c.cfg.subnet(m.launch.subnet)
	if own.Zone != other.Zone {
		return bad("InvalidParameterCombination",
			"You may not attach a network interface to an instance if they are not in the same availability zone")
	}
	if index < 0 {
		return bad("InvalidParameterValue", "Value (%d) for parameter deviceIndex is invalid.", index)
	}
	has := m.cardsOf(now)
	taken := m.lost[index]
	for _, one := range has {
		at, _, _ := one.as(now)
		taken = taken || at.in.index == index
	}
	if taken {
		return bad("InvalidParameterValue", "Instance '%s' already has an interface attached at device index '%d'.", m.id, index)
	}
	if kind := c.cfg.typeOf(m.launch.kind); kind.Interfaces > 0 && len(has) >= kind.Interfaces {
		return tooMany(len(has)+1, kind)
	}
	return nil
}

func tooMany(interfaces int, kind InstanceType) error {
	return bad("AttachmentLimitExceeded", "Interface count %d exceeds the limit for %s", interfaces, kind.Name)
}

type detachReply struct {
	XMLName struct{} `xml:"DetachNetworkInterfaceResponse"`
	header
	Return bool `xml:"return"`
}

// detachNetworkInterface has a machine let go of an interface, which it does in its own
// time. By force it has to, at the price of the index: what the machine still takes for
// plugged in there is in the way of another interface.
func detachNetworkInterface(c *Cloud, p *params) (any, error) {
	force, err := p.flag("Force")
	if err != nil {
		return nil, err
	}
	id := p.get("AttachmentId")
	switch {
	case id == "":
		return nil, bad("MissingParameter", "The request must contain the parameter AttachmentId")
	case !attachmentID.MatchString(id):
		return nil, bad("InvalidNetworkInterfaceAttachmentId.Malformed", "Invalid id: \"%.80s\"", id)
	}
	now := c.cfg.Now()
	k, at := findAttachment(c, id, now)
	switch {
	case k == nil:
		return nil, bad("InvalidAttachmentID.NotFound", "The attachment '%s' does not exist", id)
	case at.in.index == 0:
		return nil, bad("OperationNotPermitted", "The network interface at device index 0 cannot be detached.")
	case force:
		at.in.to.lose(at.in.index)
		k.put(now, plug{now, "detaching", at.in}, plug{at: now.Add(c.cfg.Detach)})
	case at.status == "detaching": // it is under way
	case at.in.to.hangs:
		k.put(now, plug{now, "detaching", at.in})
	default:
		k.put(now, plug{now, "detaching", at.in}, plug{at: now.Add(c.cfg.Detach)})
	}
	return &detachReply{Return: true}, nil
}

// findAttachment returns the card of an attachment, nil if there is none any more.
func findAttachment(c *Cloud, id string, now time.Time) (*card, plug) {
	for _, k := range c.cards {
		if p, _, ok := k.as(now); ok && p.in != nil && p.in.id == id {
			return k, p
		}
	}
	return nil, plug{}
}

// lose gives up a device index.
func (m *machine) lose(index int) {
	if m.lost == nil {
		m.lost = map[int]bool{}
	}
	m.lost[index] = true
}
