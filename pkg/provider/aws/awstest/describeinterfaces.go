package awstest

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"
)

var interfaceID = regexp.MustCompile(`^eni-([0-9a-f]{8}|[0-9a-f]{17})$`)

type attachmentItem struct {
	ID                  string `xml:"attachmentId"`
	Instance            string `xml:"instanceId"`
	Owner               string `xml:"instanceOwnerId"`
	Index               int    `xml:"deviceIndex"`
	NetworkCard         int    `xml:"networkCardIndex"`
	Status              string `xml:"status"`
	Time                string `xml:"attachTime"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
}

type privateItem struct {
	Address string `xml:"privateIpAddress"`
	Primary bool   `xml:"primary"`
}

// interfaceItem is an interface in its own list or in that of its instance, where zone and tags are
// missing.
type interfaceItem struct {
	ID         string          `xml:"networkInterfaceId"`
	Subnet     string          `xml:"subnetId"`
	VPC        string          `xml:"vpcId"`
	Zone       string          `xml:"availabilityZone,omitempty"`
	Owner      string          `xml:"ownerId"`
	Status     string          `xml:"status"`
	MAC        string          `xml:"macAddress"`
	Private    string          `xml:"privateIpAddress"`
	Groups     []groupItem     `xml:"groupSet>item"`
	Attachment *attachmentItem `xml:"attachment"`
	Tags       []tagItem       `xml:"tagSet>item"`
	Privates   []privateItem   `xml:"privateIpAddressesSet>item"`
	IPv6       string          `xml:"ipv6Address,omitempty"`
	IPv6s      []string        `xml:"ipv6AddressesSet>item>ipv6Address"`
}

// describeInterface returns an interface as of a time.
func describeInterface(c *Cloud, k *networkInterface, at time.Time) interfaceItem {
	p, h, _ := k.stateAt(at)
	s, _ := c.cfg.subnet(k.subnet)
	i := interfaceItem{
		ID: k.id, Subnet: k.subnet, VPC: s.VPC, Zone: s.Zone, Owner: c.cfg.Account, Status: p.interfaceStatus(), MAC: k.mac,
	}
	for _, group := range k.groups {
		i.Groups = append(i.Groups, groupItem{group})
	}
	if p.attachment != nil {
		i.Attachment = &attachmentItem{
			ID: p.attachment.id, Instance: p.attachment.machine.id, Owner: c.cfg.Account, Index: p.attachment.index, Status: p.status,
			Time: p.attachment.at.UTC().Format("2006-01-02T15:04:05.000Z"), DeleteOnTermination: p.attachment.deleteOnTermination,
		}
	}
	for n, addr := range h.ipv4 {
		if n == 0 {
			i.Private = addr.String()
		}
		i.Privates = append(i.Privates, privateItem{addr.String(), n == 0})
	}
	for n, addr := range h.ipv6 {
		if n == 0 {
			i.IPv6 = addr.String()
		}
		i.IPv6s = append(i.IPv6s, addr.String())
	}
	for _, key := range slices.Sorted(maps.Keys(k.tags)) {
		i.Tags = append(i.Tags, tagItem{key, k.tags[key]})
	}
	return i
}

// properties are the values that filters match.
func (i interfaceItem) properties() map[string][]string {
	p := map[string][]string{
		"network-interface-id": {i.ID}, "subnet-id": {i.Subnet}, "vpc-id": {i.VPC}, "status": {i.Status},
		"private-ip-address": {i.Private}, "mac-address": {i.MAC}, "ipv6-addresses.ipv6-address": i.IPv6s,
	}
	if a := i.Attachment; a != nil {
		p["attachment.instance-id"], p["attachment.attachment-id"] = []string{a.Instance}, []string{a.ID}
		p["attachment.device-index"], p["attachment.status"] = []string{strconv.Itoa(a.Index)}, []string{a.Status}
	}
	for _, one := range i.Privates {
		p["addresses.private-ip-address"] = append(p["addresses.private-ip-address"], one.Address)
	}
	for _, tag := range i.Tags {
		p["tag:"+tag.Key] = []string{tag.Value}
		p["tag-key"] = append(p["tag-key"], tag.Key)
	}
	return p
}

type interfacesReply struct {
	XMLName struct{} `xml:"DescribeNetworkInterfacesResponse"`
	header
	Items     []interfaceItem `xml:"networkInterfaceSet>item"`
	NextToken string          `xml:"nextToken,omitempty"`
}

// describeNetworkInterfaces shows each interface possibly stale, in pages like those of machines.
func describeNetworkInterfaces(c *Cloud, p *params) (any, error) {
	q, err := readQuery(p, "NetworkInterfaceId", limits{5, 1000}, "network-interface-id", "subnet-id", "vpc-id", "status",
		"private-ip-address", "mac-address", "addresses.private-ip-address", "ipv6-addresses.ipv6-address", "attachment.instance-id",
		"attachment.attachment-id", "attachment.device-index", "attachment.status", "tag-key", "tag:")
	if err != nil {
		return nil, err
	}
	for _, id := range q.ids {
		if !interfaceID.MatchString(id) {
			return nil, bad("InvalidNetworkInterfaceId.Malformed", "Invalid id: \"%.80s\"", id)
		}
	}
	reply, now, missing := &interfacesReply{}, c.cfg.Now(), slices.Clone(q.ids)
	for _, k := range c.interfaces {
		at := c.readTime(now)
		if _, _, ok := k.stateAt(at); !ok || k.order < q.skip {
			continue
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == k.id })
		item := describeInterface(c, k, at)
		if !q.matches(k.id, item.properties()) {
			continue
		}
		if q.page > 0 && len(reply.Items) == q.page {
			reply.NextToken = token(k.order)
			break
		}
		reply.Items = append(reply.Items, item)
	}
	if len(missing) > 0 {
		return nil, bad("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", slices.Min(missing))
	}
	return reply, nil
}
