package aws

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
)

// Tags that the provider adds to those of the contract.
const (
	tagPrefix   = "nstance:"
	tagHostname = "nstance:hostname"
	tagName     = "Name" // shown by the console
)

// ownTags is the number of tags of the provider and the contract on an instance.
const ownTags = 9

// EC2's limits on tags: characters, and number of tags.
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
)

// tagProblem returns why EC2 would refuse a tag; empty if it would not.
func tagProblem(key, value string) string {
	switch {
	case key == "" || utf8.RuneCountInString(key) > maxTagKey:
		return fmt.Sprintf("the key %.40q has %d characters: want 1 to %d", key, utf8.RuneCountInString(key), maxTagKey)
	case utf8.RuneCountInString(value) > maxTagValue:
		return fmt.Sprintf("the value of %.80q has %d characters: want at most %d", key, utf8.RuneCountInString(value), maxTagValue)
	case strings.HasPrefix(strings.ToLower(key), "aws:"):
		return fmt.Sprintf("the key %.80q is not valid: keys that begin with aws: are reserved", key)
	default:
		return ""
	}
}

// tagged returns the tags of a launch: those of args, and on the instance also those of the
// spec. The order is deterministic, as repeated launches must be identical.
func tagged(specs []types.TagSpecification, spec provider.Spec) ([]types.TagSpecification, error) {
	tags := map[string]string{tagName: spec.Hostname, tagHostname: spec.Hostname}
	if spec.Hostname == "" {
		tags[tagName] = string(spec.ID)
	}
	out := []types.TagSpecification{{ResourceType: types.ResourceTypeInstance}}
	for _, s := range specs {
		if s.ResourceType != types.ResourceTypeInstance {
			out = append(out, s)
			continue
		}
		for _, tag := range s.Tags {
			tags[sdk.ToString(tag.Key)] = sdk.ToString(tag.Value)
		}
	}
	maps.Copy(tags, spec.Tags)
	if len(tags) > maxTags {
		return nil, fmt.Errorf("%w: tags: %d on the instance, including the provider's: want at most %d",
			provider.ErrInvalid, len(tags), maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if problem := tagProblem(key, tags[key]); problem != "" {
			return nil, fmt.Errorf("%w: tags: %s", provider.ErrInvalid, problem)
		}
		out[0].Tags = append(out[0].Tags, types.Tag{Key: &key, Value: sdk.String(tags[key])})
	}
	return out, nil
}

// tagMap converts an instance's tags to a map.
func tagMap(tags []types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[sdk.ToString(t.Key)] = sdk.ToString(t.Value)
	}
	return out
}
