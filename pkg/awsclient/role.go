package awsclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// rolePath is the path of the role's name, and below it of its keys.
const rolePath = "iam/security-credentials/"

// roleKeys returns a source of the machine role's keys with their real expiry: the SDK's own
// provider reports an hour for all, so an outage of the service of that length would stop
// everything. The reply's format is that of
// docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html.
func roleKeys(service *imds.Client) func(context.Context) (Keys, error) {
	return func(ctx context.Context) (Keys, error) {
		const most = 16 << 10 // bytes; keys have about 1,500
		names, err := readMetadata(ctx, service, rolePath, most)
		if err != nil {
			return Keys{}, fmt.Errorf("get the machine's role from the metadata service: %w", err)
		}
		name, _, _ := strings.Cut(strings.TrimSpace(names), "\n")
		if name == "" {
			return Keys{}, fmt.Errorf("the machine has no role: attach an instance profile")
		}
		text, err := readMetadata(ctx, service, rolePath+name, most)
		if err != nil {
			return Keys{}, fmt.Errorf("get the keys of role %.80q from the metadata service: %w", name, err)
		}
		var answer struct {
			Code, Message, AccessKeyID, SecretAccessKey, Token string
			Expiration                                         time.Time
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			return Keys{}, fmt.Errorf("keys of role %.80q: the metadata service's answer is not valid: %w", name, err)
		}
		if answer.Code != "Success" {
			return Keys{}, fmt.Errorf("keys of role %.80q: the metadata service returned %.80q: %.200s", name, answer.Code, answer.Message)
		}
		return Keys{
			AccessKeyID: answer.AccessKeyID, SecretAccessKey: answer.SecretAccessKey, SessionToken: answer.Token,
			CanExpire: true, Expires: answer.Expiration, Source: "role",
		}, nil
	}
}
