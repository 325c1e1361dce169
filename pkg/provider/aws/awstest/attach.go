package awstest

import (
	"regexp"
	"time"
)

var attachmentID = regexp.MustCompile(`^eni-attach-([0-9a-f]{8}|[0-9a-f]{17})$`)

type attachReply struct {
	XMLName struct{} `xml:"AttachNetworkInterfaceResponse"`
	header
	ID          string `xml:"attachmentId"`
	NetworkCard int    `xml:"networkCardIndex"`
}

// attachNetworkInterface attaches a detached interface to a machine.
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
	k, err := findInterface(c, p.get("NetworkInterfaceId"))
	if err != nil {
		return nil, err
	}
	m, err := findAttachable(c, p.get("InstanceId"))
	if err != nil {
		return nil, err
	}
	if err := checkAttach(c, k, m, index); err != nil {
		return nil, err
	}
	return &attachReply{ID: attach(c, k, m, index, c.cfg.Attach, false).id}, nil
}

// findAttachable returns a machine whose state allows attaching interfaces.
func findAttachable(c *Cloud, id string) (*machine, error) {
	if err := wellFormed([]string{id}); err != nil {
		return nil, err
	}
	m, ok := c.byID[id]
	if ok {
		_, ok = m.stateAt(c.cfg.Now())
	}
	if !ok {
		return nil, instancesNotFound([]string{id})
	}
	if !m.is(c.cfg.Now(), running(), stopped()) {
		return nil, bad("IncorrectState", "Instance '%s' is not 'running' or 'stopped'.", id)
	}
	return m, nil
}

// checkAttach refuses an interface that is in use, and a machine without room for it.
func checkAttach(c *Cloud, k *networkInterface, m *machine, index int) error {
	now := c.cfg.Now()
	if at, _, _ := k.stateAt(now); at.attachment != nil {
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
	has := m.attached(now)
	taken := m.lostIndexes[index]
	for _, one := range has {
		at, _, _ := one.stateAt(now)
		taken = taken || at.attachment.index == index
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

// detachNetworkInterface starts the detachment of an interface, which the machine completes. By
// force it completes without the machine, which then keeps the device index occupied.
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
	case at.attachment.index == 0:
		return nil, bad("OperationNotPermitted", "The network interface at device index 0 cannot be detached.")
	case force:
		at.attachment.machine.loseIndex(at.attachment.index)
		k.schedule(now, attachmentState{now, "detaching", at.attachment}, attachmentState{at: now.Add(c.cfg.Detach)})
	case at.status == "detaching": // in progress
	case at.attachment.machine.hangs:
		k.schedule(now, attachmentState{now, "detaching", at.attachment})
	default:
		k.schedule(now, attachmentState{now, "detaching", at.attachment}, attachmentState{at: now.Add(c.cfg.Detach)})
	}
	return &detachReply{Return: true}, nil
}

// findAttachment returns the interface of an attachment; nil: it exists no longer.
func findAttachment(c *Cloud, id string, now time.Time) (*networkInterface, attachmentState) {
	for _, k := range c.interfaces {
		if p, _, ok := k.stateAt(now); ok && p.attachment != nil && p.attachment.id == id {
			return k, p
		}
	}
	return nil, attachmentState{}
}

// loseIndex makes a device index unusable.
func (m *machine) loseIndex(index int) {
	if m.lostIndexes == nil {
		m.lostIndexes = map[int]bool{}
	}
	m.lostIndexes[index] = true
}
