"""Who acts in a clause: the head noun of its subject, and whether that is animate.

Source: read off the subjects of image and video captions, and widened by hand.
Choice: a list of our own and no WordNet, so that the data are the same on every machine; a word
that is often a thing ("crane", "fan") is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from triaxial.models.tagger import Tag

__all__ = ["acts", "animate", "counts_others"]

_PEOPLE = """
man woman boy girl person people lady guy kid child baby toddler infant teen teenager adult male
female human someone somebody everyone everybody he she they couple friend bloke lad gentleman
fellow elder pedestrian passenger stranger twin youth individual blonde brunette redhead
"""
_KIN = """
father mother dad mom mum parent son daughter brother sister uncle aunt cousin grandfather
grandmother grandpa grandma grandparent grandson granddaughter husband wife bride groom bridesmaid
sibling relative family
"""
_TOGETHER = """
group crowd team band herd flock pack class audience crew choir orchestra army gang police squad
trio throng duo troupe staff bunch congregation
"""
_DOERS = """
player rider surfer snowboarder chef biker bicyclist cyclist skateboarder singer swimmer
motorcyclist runner officer cheerleader climber cook racer policeman policewoman skier worker
performer cowboy cowgirl musician footballer mime recruit rollerblader student cop doctor hiker
clown magician pianist jumper driver rocker veteran gamer egyptian skater opponent dancer
interviewer patient priest wrestler teammate customer enemy ringer angel guitarist drummer
violinist actor actress artist athlete boxer carpenter cashier coach dentist diver engineer farmer
fireman firefighter fisherman gardener golfer goalie goalkeeper guard hunter instructor jockey
judge juggler lawyer lifeguard mechanic nurse painter photographer pilot pitcher plumber
politician professor referee reporter sailor scientist sculptor seller shopper shepherd soldier
speaker spectator tailor teacher tourist trainer umpire vendor visitor waiter waitress walker
warrior writer acrobat animator announcer archer attendant baker ballerina barber bartender bowler
builder butcher camper caretaker catcher celebrity commuter competitor conductor contestant
defender detective director employee entertainer explorer fighter gymnast hairdresser hitchhiker
kayaker king leader learner librarian marcher member monk mountaineer neighbor nun participant
partner passerby president prince princess prisoner protester pupil queen rapper rower santa scout
secretary servant skydiver sprinter stuntman stylist sunbather thief tramp traveler traveller
volunteer wakeboarder welder wizard woodcutter youngster parachutist paraglider hurdler lumberjack
potholer rafter swordsman cadet marine sergeant
"""
_ANIMALS = """
dog cat animal monkey bird horse tiger deer fish puppy rhino ferret kitten lemur squirrel panda
lion bee duck cheetah chimp parrot turtle sheep cow pig bear rabbit sheepdog cub badger kangaroo
seabird elephant bunny retriever hamster llama crocodile dachshund daschund goat wolf fox mouse
rat donkey camel giraffe zebra gorilla ape hippo rhinoceros hippopotamus leopard jaguar puma otter
seal walrus whale dolphin shark penguin swan goose chicken rooster hen turkey owl eagle hawk
falcon pigeon dove crow raven seagull gull pelican flamingo peacock ostrich lizard snake frog toad
alligator tortoise iguana chameleon gecko insect butterfly moth spider ant wasp beetle mosquito
ladybug caterpillar snail worm crab lobster octopus squid poodle terrier labrador collie bulldog
greyhound beagle husky dalmatian spaniel hound pup calf lamb foal pony mare stallion bull ox
buffalo bison moose elk reindeer caribou antelope gazelle koala sloth raccoon skunk beaver
hedgehog mole chipmunk meerkat mongoose hyena baboon orangutan chimpanzee creature pet predator
prey cattle livestock chick duckling piglet macaw cockatoo parakeet budgie canary sparrow robin
"""
# "a group of dogs", "two of the men": the head is behind the "of".
_OF = """
group pair bunch crowd couple team number lot trio throng band herd flock pack family class gang
troop troupe squad swarm litter cluster mob gathering line row one two three four five some
several many most all both majority crew
"""
_COLOURED = "black white brown red blue green yellow grey gray orange purple pink tan"
_ANIMATE = frozenset((_PEOPLE + _KIN + _TOGETHER + _DOERS + _ANIMALS).split())
_GROUPS = frozenset(_OF.split())
_COLOURS = frozenset(_COLOURED.split())
_IRREGULAR = {
    **{"men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose"},
    **{"wolves": "wolf", "calves": "calf", "thieves": "thief", "oxen": "ox", "wives": "wife"},
}


def acts(low: Sequence[str], tags: Sequence[Tag], subject: range, plural: bool) -> bool:
    """Whether the head of a subject is animate, and its last conjunct where that makes it plural.

    Args:
        low: The sentence's words, case-folded.
        tags: Their tags.
        subject: The places of the subject's words.
        plural: Whether the verb is plural.
    """
    head, end = _head(low, tags, subject)
    if not animate(head):
        return False
    if not plural or head in _GROUPS or _singular(head) != head:
        return True
    joins = [i for i in subject if low[i] == "and" and i >= end]
    return not joins or animate(_head(low, tags, range(joins[-1] + 1, subject.stop))[0])


def animate(word: str) -> bool:
    """Whether a case-folded noun, singular or plural, is on the list."""
    return _singular(word.rpartition("-")[2]) in _ANIMATE


def counts_others(word: str) -> bool:
    """Whether a word counts what follows its "of": "group", "two"."""
    return word in _GROUPS


def _head(low: Sequence[str], tags: Sequence[Tag], subject: range) -> tuple[str, int]:
    """The head noun of a noun phrase, "dogs" of "a group of dogs", and where its core ends."""
    last = subject.start
    for i in subject:
        known = i > subject.start and animate(low[i - 1])
        if low[i] == "of" and low[i - 1] in _GROUPS:
            return _head(low, tags, range(i + 1, subject.stop))
        colour = tags[last].pos == "ADJ" or low[last] in _COLOURS
        if colour and (tags[i].pos == "CONJ" or low[i] == ","):
            continue  # "a brown and white dog"
        if tags[i].pos in ("ADP", "CONJ", "PUNCT", "PART") and not animate(low[i]):
            return low[last], i
        if known and (low[i].endswith(("ing", "ed")) or tags[i].pos in ("VERB", "ADV", "DET")):
            return low[last], i
        last = i
    return low[last], subject.stop


def _singular(word: str) -> str:
    if word in _ANIMATE or word in _IRREGULAR:
        return _IRREGULAR.get(word, word)
    if word.endswith("men"):
        return word[:-2] + "an"
    for ending, own in (("ies", "y"), ("es", ""), ("s", "")):
        if word.endswith(ending) and word.removesuffix(ending) + own in _ANIMATE:
            return word.removesuffix(ending) + own
    return word
