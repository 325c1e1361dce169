package awsclient

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

var instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// IsInstanceID reports whether an id looks like what EC2 calls an instance.
func IsInstanceID(id string) bool { return instanceID.MatchString(id) }

// InstanceID asks the metadata service which instance this is. client makes the calls;
// nil: the SDK's own.
func InstanceID(ctx context.Context, client *http.Client) (string, error) {
	const most = 64 // bytes; an id has 19
	text, err := readMetadata(ctx, newMetadata(client), "instance-id", most)
	if err != nil {
		return "", fmt.Errorf("ask the metadata service which instance this is: %w", err)
	}
	id := strings.TrimSpace(text)
	if !IsInstanceID(id) {
		return "", fmt.Errorf("the metadata service says that this is %q: want an instance such as i-0123456789abcdef0", id)
	}
	return id, nil
}
