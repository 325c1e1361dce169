package awstest

import (
	"slices"
	"time"
)

// Image is a machine image.
type Image struct {
	ID         string
	Owner      string // the account
	OwnerAlias string // such as amazon; empty: none
	Name       string
	Arch       string // x86_64 | arm64
	State      string // available, pending, failed
	CreatedAt  time.Time
	Tags       map[string]string
}

type imageItem struct {
	ID      string    `xml:"imageId"`
	State   string    `xml:"imageState"`
	Owner   string    `xml:"imageOwnerId"`
	Alias   string    `xml:"imageOwnerAlias,omitempty"`
	Arch    string    `xml:"architecture"`
	Type    string    `xml:"imageType"`
	Name    string    `xml:"name"`
	Created string    `xml:"creationDate"`
	Tags    []tagItem `xml:"tagSet>item"`
}

type imagesReply struct {
	XMLName struct{} `xml:"DescribeImagesResponse"`
	header
	Items     []imageItem `xml:"imagesSet>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

// describeImages returns the images of the requested owners; none: of all.
func (c *Cloud) describeImages(p *params) (any, error) {
	q, err := readQuery(p, "ImageId", limits{1, 1000}, "image-id", "name", "architecture", "state", "owner-id", "owner-alias",
		"virtualization-type", "root-device-type", "tag-key", "tag:")
	if err != nil {
		return nil, err
	}
	owners, err := p.list("Owner")
	if err != nil {
		return nil, err
	}
	var items []imageItem
	for _, i := range c.cfg.Images {
		if len(owners) > 0 && !slices.ContainsFunc(owners, func(o string) bool { return i.ownedBy(o, c.cfg.Account) }) {
			continue
		}
		item := imageItem{
			ID: i.ID, State: i.State, Owner: i.Owner, Alias: i.OwnerAlias, Arch: i.Arch, Type: "machine", Name: i.Name,
			Created: i.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"),
		}
		if q.matches(i.ID, i.properties()) {
			items = append(items, item)
		}
	}
	page, next := paginate(q, items)
	return &imagesReply{Items: page, NextToken: next}, nil
}

// ownedBy reports whether owner, an account, an alias or self, owns the image.
func (i Image) ownedBy(owner, account string) bool {
	return owner == i.Owner || owner == i.OwnerAlias && owner != "" || owner == "self" && i.Owner == account
}

func (i Image) properties() map[string][]string {
	p := map[string][]string{
		"image-id": {i.ID}, "name": {i.Name}, "architecture": {i.Arch}, "state": {i.State}, "owner-id": {i.Owner},
		"owner-alias": {i.OwnerAlias}, "virtualization-type": {"hvm"}, "root-device-type": {"ebs"},
	}
	for key, value := range i.Tags {
		p["tag:"+key] = []string{value}
		p["tag-key"] = append(p["tag-key"], key)
	}
	return p
}
