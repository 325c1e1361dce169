package awsclient

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

var instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// IsInstanceID reports whether id looks like an EC2 instance ID.
func IsInstanceID(id string) bool { return instanceID.MatchString(id) }

// InstanceID returns this machine's instance ID from the metadata service. client makes the
// calls; nil: the SDK's default.
func InstanceID(ctx context.Context, client *http.Client) (string, error) {
	const most = 64 // bytes; an id has 19
	text, err := readMetadata(ctx, newMetadata(client), "instance-id", most)
	if err != nil {
		return "", fmt.Errorf("get this machine's instance ID from the metadata service: %w", err)
	}
	id := strings.TrimSpace(text)
	if !IsInstanceID(id) {
		return "", fmt.Errorf("the metadata service returned %q: want an instance ID such as i-0123456789abcdef0", id)
	}
	return id, nil
}
