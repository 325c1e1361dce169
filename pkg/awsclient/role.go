package awsclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// rolePath has the name of a machine's role, and below it the keys of it.
const rolePath = "iam/security-credentials/"

// roleKeys asks the metadata service for the keys of the machine's role. They are told to
// expire when they do: the SDK's own provider says an hour, however long they live, so
// that a service which is not well for that long would stop everything.
// The form of the answer is that of docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html.
func roleKeys(service *imds.Client) func(context.Context) (Keys, error) {
	return func(ctx context.Context) (Keys, error) {
		const most = 16 << 10 // bytes; keys have about 1,500
		names, err := readMetadata(ctx, service, rolePath, most)
		if err != nil {
			return Keys{}, fmt.Errorf("ask the metadata service for the machine's role: %w", err)
		}
		name, _, _ := strings.Cut(strings.TrimSpace(names), "\n")
		if name == "" {
			return Keys{}, fmt.Errorf("the metadata service tells of no role: want an instance profile for this machine")
		}
		text, err := readMetadata(ctx, service, rolePath+name, most)
		if err != nil {
			return Keys{}, fmt.Errorf("ask the metadata service for the keys of the role %.80q: %w", name, err)
		}
		var answer struct {
			Code, Message, AccessKeyID, SecretAccessKey, Token string
			Expiration                                         time.Time
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			return Keys{}, fmt.Errorf("keys of the role %.80q: the metadata service's answer is no JSON of keys: %w", name, err)
		}
		if answer.Code != "Success" {
			return Keys{}, fmt.Errorf("keys of the role %.80q: the metadata service says %.80q: %.200s", name, answer.Code, answer.Message)
		}
		return Keys{
			AccessKeyID: answer.AccessKeyID, SecretAccessKey: answer.SecretAccessKey, SessionToken: answer.Token,
			CanExpire: true, Expires: answer.Expiration, Source: "role",
		}, nil
	}
}
