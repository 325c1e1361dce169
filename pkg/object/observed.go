package object

import "context"

// Observed is a store whose requests are observed. Begin is called before each request, and what it
// returns with the request's error, which is nil for success. Both are called by the goroutine of the
// request, and must not wait.
type Observed struct {
	Store
	Begin func(ctx context.Context, verb Verb, key string) (ended func(error))
}

var _ Store = Observed{}

// Get implements Store.
func (s Observed) Get(ctx context.Context, key string) (Object, error) {
	ended := s.Begin(ctx, VerbGet, key)
	o, err := s.Store.Get(ctx, key)
	ended(err)
	return o, err
}

// Put implements Store.
func (s Observed) Put(ctx context.Context, key string, body []byte, pre Precondition) (ETag, error) {
	ended := s.Begin(ctx, VerbPut, key)
	etag, err := s.Store.Put(ctx, key, body, pre)
	ended(err)
	return etag, err
}

// Delete implements Store.
func (s Observed) Delete(ctx context.Context, key string) error {
	ended := s.Begin(ctx, VerbDelete, key)
	err := s.Store.Delete(ctx, key)
	ended(err)
	return err
}

// List implements Store. The key of the request is the prefix.
func (s Observed) List(ctx context.Context, prefix, token string) (Page, error) {
	ended := s.Begin(ctx, VerbList, prefix)
	p, err := s.Store.List(ctx, prefix, token)
	ended(err)
	return p, err
}
