package awstest

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file implements Secrets Manager.

// maxSecret is the maximum length of a secret, in bytes.
const maxSecret = 64 << 10

// secret is a secret and its versions, which never change.
type secret struct {
	name, arn         string
	versions          []version // the last one is current
	deletionScheduled bool      // the deletion is scheduled
}

// version is the value of a secret or a parameter from a time on.
type version struct {
	at     time.Time
	token  string
	text   string
	binary string // in base64
	isText bool
}

func (v version) equal(other version) bool {
	return v.text == other.text && v.binary == other.binary && v.isText == other.isText
}

// versionAt returns the version that was current at a time, and its number; 0: there was none.
func versionAt(versions []version, at time.Time) (v version, number int) {
	for n, one := range versions {
		if !one.at.After(at) {
			v, number = one, n+1
		}
	}
	return v, number
}

func secretActions() map[string]action {
	value := []string{"ClientRequestToken", "SecretString", "SecretBinary"}
	return map[string]action{
		"CreateSecret":   {parameterSet(append(value, "Name", "Description", "KmsKeyId")), onSecrets((*Secrets).createSecret)},
		"PutSecretValue": {parameterSet(append(value, "SecretId")), onSecrets((*Secrets).putSecretValue)},
		"GetSecretValue": {parameterSet([]string{"SecretId", "VersionId", "VersionStage"}), onSecrets((*Secrets).getSecretValue)},
	}
}

// Secrets is the Secrets Manager of a Cloud. It is safe for concurrent use.
type Secrets struct {
	cloud   *Cloud
	secrets []*secret
}

func onSecrets(do func(*Secrets, *params) (any, error)) func(*Cloud, *params) (any, error) {
	return func(c *Cloud, p *params) (any, error) { return do(c.Secrets, p) }
}

// ScheduleDeletion schedules the deletion of a secret, as the console does. It returns an error if
// the secret is unknown.
func (k *Secrets) ScheduleDeletion(name string) error {
	k.cloud.mu.Lock()
	defer k.cloud.mu.Unlock()
	s := k.secret(name)
	if s == nil {
		return fmt.Errorf("no secret %.80q", name)
	}
	s.deletionScheduled = true
	return nil
}

// Put stores a string, as the console does, and returns the secret's ARN.
func (k *Secrets) Put(name, text string) string {
	k.cloud.mu.Lock()
	defer k.cloud.mu.Unlock()
	v := version{at: k.cloud.cfg.Now().Add(-k.cloud.cfg.Lag), token: hexID(k.cloud.random) + hexID(k.cloud.random), text: text, isText: true}
	s := k.secret(name)
	if s == nil {
		s = k.add(name)
	}
	s.versions = append(s.versions, v)
	return s.arn
}

// add makes a secret without a version.
func (k *Secrets) add(name string) *secret {
	arn := []string{"arn:aws:secretsmanager", k.cloud.cfg.Region, k.cloud.cfg.Account, "secret", name + "-" + hexID(k.cloud.random)[:6]}
	s := &secret{name: name, arn: strings.Join(arn, ":")}
	k.secrets = append(k.secrets, s)
	return s
}

// secret finds a secret by its name or ARN; nil: there is none.
func (k *Secrets) secret(id string) *secret {
	n := slices.IndexFunc(k.secrets, func(s *secret) bool { return s.name == id || s.arn == id })
	if n < 0 {
		return nil
	}
	return k.secrets[n]
}

var secretName = regexp.MustCompile(`^[A-Za-z0-9/_+=.@-]{1,512}$`)

// readVersion reads the new value from a call.
func (k *Secrets) readVersion(p *params) (version, error) {
	v := version{at: k.cloud.cfg.Now(), token: p.get("ClientRequestToken"), text: p.get("SecretString"), isText: p.has("SecretString")}
	length := len(v.text)
	if p.has("SecretBinary") {
		plain, err := base64.StdEncoding.DecodeString(p.get("SecretBinary"))
		if err != nil {
			return v, bad(malformed, "SecretBinary is no base64")
		}
		v.binary, length = p.get("SecretBinary"), len(plain)
	}
	switch {
	case len(v.token) < 32 || len(v.token) > 64:
		return v, bad("InvalidParameterException", "ClientRequestToken must be 32-64 characters long.")
	case v.isText == p.has("SecretBinary"):
		return v, bad("InvalidRequestException", "You must provide either SecretString or SecretBinary.")
	case length > maxSecret || length == 0:
		return v, bad("ValidationException", "Value at 'secretString' failed to satisfy constraint: Member must have length between 1 and %d",
			maxSecret)
	}
	return v, nil
}

func (k *Secrets) createSecret(p *params) (any, error) {
	v, err := k.readVersion(p)
	if err != nil {
		return nil, err
	}
	name := p.get("Name")
	if !secretName.MatchString(name) {
		return nil, bad("ValidationException", "Invalid name. Must be a valid name containing alphanumeric characters, or any of: -/_+=.@!")
	}
	s := k.secret(name)
	switch {
	case s == nil:
		s = k.add(name)
		s.versions = []version{v}
	case s.deletionScheduled:
		return nil, bad("InvalidRequestException",
			"You can't create this secret because a secret with this name is already scheduled for deletion.")
	case s.has(v):
	default:
		return nil, bad("ResourceExistsException", "The operation failed because the secret %s already exists.", name)
	}
	return s.reply(v.token), nil
}

// has reports whether the secret has a version with the same token and value.
func (s *secret) has(v version) bool {
	return slices.ContainsFunc(s.versions, func(have version) bool { return have.token == v.token && have.equal(v) })
}

func (s *secret) reply(token string) map[string]any {
	return map[string]any{"ARN": s.arn, "Name": s.name, "VersionId": token}
}

// requested returns the secret that a call names.
func (k *Secrets) requested(p *params) (*secret, error) {
	s := k.secret(p.get("SecretId"))
	if s == nil {
		return nil, bad("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
	}
	if s.deletionScheduled {
		return nil, bad("InvalidRequestException", "You can't perform this operation on the secret because it was marked for deletion.")
	}
	return s, nil
}

func (k *Secrets) putSecretValue(p *params) (any, error) {
	v, err := k.readVersion(p)
	if err != nil {
		return nil, err
	}
	s, err := k.requested(p)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.versions, func(have version) bool { return have.token == v.token }) {
		if !s.has(v) {
			return nil, bad("ResourceExistsException", "You can't modify the version %s.", v.token)
		}
		return s.reply(v.token), nil
	}
	s.versions = append(s.versions, v)
	return s.reply(v.token), nil
}

// getSecretValue returns a secret, possibly stale.
func (k *Secrets) getSecretValue(p *params) (any, error) {
	if stage := p.get("VersionStage"); stage != "" && stage != "AWSCURRENT" || p.has("VersionId") {
		return nil, bad("InvalidParameterException", "this cloud shows AWSCURRENT only")
	}
	s, err := k.requested(p)
	if err != nil {
		return nil, err
	}
	v, number := versionAt(s.versions, k.cloud.readTime(k.cloud.cfg.Now()))
	if number == 0 {
		return nil, bad("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
	}
	reply := s.reply(v.token)
	reply["VersionStages"] = []string{"AWSCURRENT"}
	reply["CreatedDate"] = float64(v.at.UnixMilli()) / 1000
	if v.isText {
		reply["SecretString"] = v.text
	} else {
		reply["SecretBinary"] = v.binary
	}
	return reply, nil
}
