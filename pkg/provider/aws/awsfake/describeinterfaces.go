package awsfake

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"
)

var interfaceID = regexp.MustCompile(`^eni-([0-9a-f]{8}|[0-9a-f]{17})$`)

type attachmentItem struct {
	ID       string `xml:"attachmentId"`
	Instance string `xml:"instanceId"`
	Owner    string `xml:"instanceOwnerId"`
	Index    int    `xml:"deviceIndex"`
	CardAt   int    `xml:"networkCardIndex"`
	Status   string `xml:"status"`
	Time     string `xml:"attachTime"`
	Ends     bool   `xml:"deleteOnTermination"`
}

type privateItem struct {
	Address string `xml:"privateIpAddress"`
	Primary bool   `xml:"primary"`
}

// cardItem is an interface in a list of its own, or in that of its instance, which has
// no zone and no tags of it.
type cardItem struct {
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

// showCard shows a card as it was at a time.
func showCard(c *Cloud, k *card, at time.Time) cardItem {
	p, h, _ := k.as(at)
	s, _ := c.cfg.subnet(k.subnet)
	i := cardItem{
		ID: k.id, Subnet: k.subnet, VPC: s.VPC, Zone: s.Zone, Owner: c.cfg.Account, Status: p.state(), MAC: k.mac,
	}
	for _, group := range k.groups {
		i.Groups = append(i.Groups, groupItem{group})
	}
	if p.in != nil {
		i.Attachment = &attachmentItem{
			ID: p.in.id, Instance: p.in.to.id, Owner: c.cfg.Account, Index: p.in.index, Status: p.status,
			Time: p.in.at.UTC().Format("2006-01-02T15:04:05.000Z"), Ends: p.in.ends,
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

// properties are what interfaces can be filtered by.
func (i cardItem) properties() map[string][]string {
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

type cardsReply struct {
	XMLName struct{} `xml:"DescribeNetworkInterfacesResponse"`
	header
	Items     []cardItem `xml:"networkInterfaceSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

// describeNetworkInterfaces shows each as it was a while ago, in pages as those of
// machines are.
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
	reply, now, missing := &cardsReply{}, c.cfg.Now(), slices.Clone(q.ids)
	for _, k := range c.cards {
		at := c.shown(now)
		if _, _, ok := k.as(at); !ok || k.order < q.skip {
			continue
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == k.id })
		item := showCard(c, k, at)
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
