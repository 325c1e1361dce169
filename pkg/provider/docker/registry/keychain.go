package registry

import (
	"context"
	"fmt"
	"os"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// keychain is the path of a docker config.json.
type keychain string

var _ authn.Keychain = keychain("")

// patient is a keychain whose look-ups end with their context: a credential helper is a program
// and may hang.
type patient struct{ authn.Keychain }

var _ authn.ContextKeychain = patient{}

// ResolveContext implements authn.ContextKeychain.
func (p patient) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	type answer struct {
		found authn.Authenticator
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		found, err := p.Resolve(target)
		answers <- answer{found, err}
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the password of %s: %w", target.RegistryStr(), ctx.Err())
	case a := <-answers:
		return a.found, a.err
	}
}

// CheckConfig returns an error if a file is not a docker config.json.
func CheckConfig(path string) error {
	_, err := keychain(path).load()
	return err
}

func (k keychain) load() (*configfile.ConfigFile, error) {
	file, err := os.Open(string(k))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	loaded, err := config.LoadFromReader(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k, err)
	}
	return loaded, nil
}

// Resolve implements authn.Keychain. Passwords may be configured for a repository or for its
// registry.
func (k keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	loaded, err := k.load()
	if err != nil {
		return nil, err
	}
	for _, key := range []string{target.String(), target.RegistryStr()} {
		if key == name.DefaultRegistry {
			key = authn.DefaultAuthKey
		}
		found, err := loaded.GetAuthConfig(key)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", k, err)
		}
		found.ServerAddress = "" // set even if nothing is found
		if found != (types.AuthConfig{}) {
			return authn.FromConfig(authn.AuthConfig{
				Username: found.Username, Password: found.Password, Auth: found.Auth,
				IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
			}), nil
		}
	}
	return authn.Anonymous, nil
}
